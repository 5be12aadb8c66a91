// Signals, with notify_check in the handler.
#include "expect.h"

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

int main(int argc, char **argv) {
    take_role(argc, argv);
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    sigaction(SIGUSR1, &action, NULL);

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
    return finish();
}
