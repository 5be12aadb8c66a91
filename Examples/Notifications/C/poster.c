// A name says that there is something to fetch. A notification of notify(3) has no payload.
#include <notify.h>

int main(void) { return notify_post("com.example.order") == NOTIFY_STATUS_OK ? 0 : 1; }
