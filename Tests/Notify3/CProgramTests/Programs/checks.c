// The results of notify_check.
#include "expect.h"
#include <notify_private.h>
#include <pthread.h>

static void each_token_has_its_own_answer(void) {
    // Rules, a.7: the first check of each token is true, even if another token of the name was checked before.
    int first = watch("org.example.own"), second = -1, plain = -1, descriptor = -1, fd = -1, signal_token = -1;
    EXPECT_EQUAL(checked(first), 0);
    EXPECT_OK(notify_register_check("org.example.own", &second));
    EXPECT_EQUAL(checked(second), 1);
    EXPECT_EQUAL(checked(second), 0);
    // a.2: tokens of every kind can be checked.
    EXPECT_OK(notify_register_plain("org.example.own", &plain));
    EXPECT_OK(notify_register_file_descriptor("org.example.own", &fd, 0, &descriptor));
    EXPECT_OK(notify_register_signal("org.example.own", SIGCHLD, &signal_token));
    int tokens[] = {first, second, plain, descriptor, signal_token};
    for (int i = 2; i < 5; i++) EXPECT_EQUAL(checked(tokens[i]), 1);

    // a.9: any number of posts gives one “true”.
    for (int i = 0; i < 100; i++) EXPECT_OK(notify_post("org.example.own"));
    fence();
    for (int i = 0; i < 5; i++) EXPECT_EQUAL(checked(tokens[i]), 1);
    for (int i = 0; i < 5; i++) EXPECT_EQUAL(checked(tokens[i]), 0);
    for (int i = 0; i < 5; i++) EXPECT_OK(notify_cancel(tokens[i]));

    // After the last registration, a new one has its first “true” again.
    EXPECT_OK(notify_cancel(watch("org.example.own")));
}

static void a_post_then_an_answer(void) {
    // a.8: a post, and then any function that waits for a reply.
    int token = watch("org.example.fenced");
    uint64_t state;
    for (int i = 0; i < 200; i++) {
        EXPECT_OK(notify_post("org.example.fenced"));
        if (i % 2) {
            EXPECT_OK(notify_get_state(token, &state));
        } else {
            fence();
        }
        EXPECT_EQUAL(checked(token), 1);
        EXPECT_EQUAL(checked(token), 0);
    }
    // a.7: a post in another process.
    post_elsewhere("org.example.fenced");
    EVENTUALLY(checked(token) == 1);
    EXPECT_OK(notify_cancel(token));
}

static void suspended(void) {
    // a.10: suspension does not affect notify_check.
    int token = watch("org.example.suspended");
    EXPECT_OK(notify_suspend(token));
    EXPECT_EQUAL(checked(token), 0);
    EXPECT_OK(notify_post("org.example.suspended"));
    fence();
    EXPECT_EQUAL(checked(token), 1);
    EXPECT_OK(notify_resume(token));
    EXPECT_EQUAL(checked(token), 0);
    EXPECT_OK(notify_cancel(token));
}

static void peeking(void) {
    // a.3: notify_peek reads the counter without changing the next check.
    int token = watch("org.example.peeked"), own = -1;
    uint32_t before = 0, after = 0;
    EXPECT_OK(notify_peek(token, &before));
    EXPECT_OK(notify_post("org.example.peeked"));
    fence();
    EXPECT_OK(notify_peek(token, &after));
    EXPECT(before != after);
    EXPECT_OK(notify_peek(token, &before));
    EXPECT_EQUAL(before, after);
    EXPECT_EQUAL(checked(token), 1);
    EXPECT_OK(notify_cancel(token));
    // Names of the process too.
    EXPECT_OK(notify_register_check("self.peeked", &own));
    EXPECT_OK(notify_peek(own, &before));
    EXPECT_OK(notify_post("self.peeked"));
    EXPECT_OK(notify_peek(own, &after));
    EXPECT(before != after);
    EXPECT_OK(notify_cancel(own));
}

// The environment is read once: a program that prepares its environment for children stays on its own bus.
static void the_environment_changes(void) {
    int token = watch("org.example.environment"), other = -1;
    setenv("NOTIFY_CENTER_BUS", "unix:path=/nonexistent", 1);
    EXPECT_OK(notify_post("org.example.environment"));
    EXPECT_OK(notify_register_check("org.example.environment", &other));
    EXPECT_EQUAL(checked(token), 1);
    EXPECT_OK(notify_set_state(token, 5));
    EXPECT_OK(notify_cancel(token));
    EXPECT_OK(notify_cancel(other));
}

enum { THREADS = 4, TURNS = 400 };

static void *register_post_cancel(void *context) {
    const char *own = (const char *)context;
    for (int i = 0; i < TURNS; i++) {
        const char *name = i % 2 ? own : "org.example.thread.shared";
        int token = -1, fd = -1, fd_token = -1;
        EXPECT_OK(notify_register_check(name, &token));
        EXPECT_EQUAL(checked(token), 1);
        EXPECT_OK(notify_post(name));
        if (i % 50 == 0) {
            EXPECT_OK(notify_register_file_descriptor(name, &fd, 0, &fd_token));
            EXPECT_OK(notify_post(name));
            EXPECT_EQUAL(next_token(fd), fd_token);
            EXPECT_OK(notify_cancel(fd_token));
            // The registration of the descriptor did not wait for the bus. The fence does.
            fence();
            EXPECT_EQUAL(checked(token), 1);
        }
        EXPECT_OK(notify_suspend(token));
        EXPECT_OK(notify_resume(token));
        EXPECT_OK(notify_cancel(token));
    }
    return NULL;
}

static void many_threads_at_once(void) {
    // All functions may be called from any thread.
    static char names[THREADS][64];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        snprintf(names[i], sizeof names[i], "org.example.thread.%d", i);
        EXPECT_EQUAL(pthread_create(&threads[i], NULL, register_post_cancel, names[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

int main(int argc, char **argv) {
    take_role(argc, argv);
    each_token_has_its_own_answer();
    a_post_then_an_answer();
    suspended();
    peeking();
    the_environment_changes();
    many_threads_at_once();
    return finish();
}
