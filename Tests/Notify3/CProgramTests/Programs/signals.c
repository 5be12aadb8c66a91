// Signals, with notify_check in the handler.
#include "expect.h"
#include <pthread.h>

static volatile sig_atomic_t calls, first_posts, second_posts;
static int first = -1, second = -1;

// notify_check and notify_is_valid_token in a signal handler, with tokens of several names on one signal.
static void handler(int number) {
    (void)number;
    int check = 0;
    calls++;
    if (notify_check(first, &check) == NOTIFY_STATUS_OK && check) first_posts++;
    if (notify_check(second, &check) == NOTIFY_STATUS_OK && check) second_posts++;
    if (notify_is_valid_token(-1)) calls = -1000000;
}

static void handle_with(void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler};
    sigaction(SIGUSR1, &action, NULL);
}

static const char *name = "self.org.example.cancelled";
static volatile sig_atomic_t cancelled, late;
static volatile int done;

static void note_late_signals(int number) {
    (void)number;
    calls++;
    if (cancelled) late++;
}

static void *post(void *argument) {
    (void)argument;
    while (!done) notify_post(name);
    return NULL;
}

// Cancels tokens that are delivered by signals, while another thread posts their name without a pause.
static void none_comes_after_the_cancellation(void) {
    handle_with(note_late_signals);
    calls = 0;
    int watched = watch(name);
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
    EXPECT_OK(notify_cancel(watched));
}

int main(int argc, char **argv) {
    take_role(argc, argv);
    handle_with(handler);
    EXPECT_OK(notify_register_signal("org.example.signal.1", SIGUSR1, &first));
    EXPECT_OK(notify_register_signal("org.example.signal.2", SIGUSR1, &second));
    EXPECT_EQUAL(checked(first), 1);
    EXPECT_EQUAL(checked(second), 1);
    EXPECT_EQUAL(calls, 0);

    // a.2: several names may share a signal, and notify_check tells which.
    EXPECT_OK(notify_post("org.example.signal.1"));
    EVENTUALLY(first_posts == 1);
    EXPECT_EQUAL(second_posts, 0);
    EXPECT_OK(notify_post("org.example.signal.2"));
    EVENTUALLY(second_posts == 1);
    EXPECT_EQUAL(first_posts, 1);
    post_elsewhere("org.example.signal.1");
    EVENTUALLY(first_posts == 2);

    // a.9: signals merge: while they are blocked, any number of posts gives one signal.
    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, &before);
    int calls_before = calls;
    for (int i = 0; i < 50; i++) EXPECT_OK(notify_post("org.example.signal.1"));
    settle();
    EXPECT_EQUAL(calls, calls_before);
    sigprocmask(SIG_SETMASK, &before, NULL);
    EXPECT_EQUAL(calls, calls_before + 1);
    EXPECT_EQUAL(first_posts, 3);

    // Interrupts a thread many times inside the library. The handler must not wait for the function that it interrupts.
    int seen = first_posts;
    for (int i = 0; i < 3000; i++) {
        int token = -1;
        EXPECT_OK(notify_post("org.example.signal.1"));
        EXPECT_OK(notify_register_check("org.example.signal.1", &token));
        checked(token);
        EXPECT_OK(notify_cancel(token));
    }
    EVENTUALLY(first_posts > seen);

    // a.10: no signal follows notify_cancel.
    settle();
    EXPECT_OK(notify_cancel(first));
    EXPECT_OK(notify_cancel(second));
    calls_before = calls;
    EXPECT_OK(notify_post("org.example.signal.1"));
    EXPECT_OK(notify_post("org.example.signal.2"));
    settle();
    EXPECT_EQUAL(calls, calls_before);
    none_comes_after_the_cancellation();
    return finish();
}
