// Many threads at once.
#include "expect.h"
#include <pthread.h>

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

static void threads(void) {
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
    threads();
    return finish();
}
