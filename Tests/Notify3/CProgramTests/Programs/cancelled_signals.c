// Cancels tokens that are delivered by signals, while another thread posts their name without a pause.
#include "expect.h"
#include <pthread.h>

static const char *name = "self.org.example.cancelled";
static volatile sig_atomic_t calls, cancelled, late;
static volatile int done;

static void handler(int number) {
    (void)number;
    calls++;
    if (cancelled) late++;
}

static void *post(void *argument) {
    (void)argument;
    while (!done) notify_post(name);
    return NULL;
}

int main(int argc, char **argv) {
    take_role(argc, argv);
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    sigaction(SIGUSR1, &action, NULL);
    watch(name);
    pthread_t poster;
    EXPECT_EQUAL(pthread_create(&poster, NULL, post, NULL), 0);

    // a.10: once notify_cancel has returned, a program may remove its handler.
    for (int round = 0; round < 100000 && !late; round++) {
        int token = -1;
        cancelled = 0;
        EXPECT_OK(notify_register_signal(name, SIGUSR1, &token));
        for (volatile int pause = 0; pause < round % 2000; pause++) {}
        EXPECT_OK(notify_cancel(token));
        cancelled = 1;
    }
    EXPECT_EQUAL(late, 0);
    EXPECT(calls > 0);
    done = 1;
    pthread_join(poster, NULL);
    return finish();
}
