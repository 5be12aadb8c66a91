// ends [NAME [COUNT]]: registers a name, posts it COUNT times, and returns from main at once, without reading its own
// posts.
#include <notify.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "org.example.ends";
    int token, descriptor, count = argc > 2 ? atoi(argv[2]) : 200;
    // The pipe has no active reader.
    if (notify_register_file_descriptor(name, &descriptor, 0, &token) != NOTIFY_STATUS_OK) return 3;
    while (count-- > 0) {
        if (notify_post(name) != NOTIFY_STATUS_OK) return 4;
    }
    return 0;
}
