#include <arpa/inet.h>
#include <notify.h>
#include <stdio.h>
#include <unistd.h>

int main(void) {
    int descriptor, token, posted;
    if (notify_register_file_descriptor("com.example.order", &descriptor, 0, &token) != NOTIFY_STATUS_OK) return 1;
    // Each post writes the token, in network byte order.
    while (read(descriptor, &posted, sizeof posted) == sizeof posted) {
        if ((int)ntohl((unsigned)posted) == token) puts("com.example.order");
        fflush(stdout);
    }
}
