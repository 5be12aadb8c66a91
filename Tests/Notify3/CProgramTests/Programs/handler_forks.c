// Calls fork inside a signal handler that interrupts these functions, as crash handlers do.
#include "expect.h"
#include <pthread.h>
#include <sys/time.h>

enum { ROUNDS = 14 };

static volatile sig_atomic_t child_status = -1;

// Interrupts a function of the main thread, which may hold the library's locks.
static void fork_here(int signal) {
    (void)signal;
    pid_t process = fork();
    if (process == 0) _exit(0);
    int status = -1;
    waitpid(process, &status, 0);
    child_status = status;
}

static int token = -1;

static void *register_and_post(void *context) {
    (void)context;
    for (;;) {
        int other = -1;
        notify_register_check("self.handler.other", &other);
        notify_post("self.handler");
        notify_cancel(other);
    }
    return NULL;
}

// The first fork of this process is the one in the handler.
static int one_fork(const char *milliseconds) {
    pthread_t thread;
    struct itimerval soon = {.it_value = {.tv_usec = 1000 * atoi(milliseconds)}};
    struct sigaction action = {.sa_handler = fork_here};
    sigset_t alarms, before;
    EXPECT_OK(notify_register_check("self.handler", &token));
    // Only the main thread is interrupted, and only in functions that take locks and no memory, because the C library's
    // own fork may wait for its heap.
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarms, &before);
    EXPECT_EQUAL(pthread_create(&thread, NULL, register_and_post, NULL), 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &soon, NULL);
    while (child_status < 0) {
        notify_suspend(token);
        notify_resume(token);
    }
    EXPECT_EQUAL(child_status, 0);
    return failures;
}

int main(int argc, char **argv) {
    take_role(argc, argv);
    if (is_role(argc, argv, "fork")) return one_fork(argv[2]);
    for (int i = 0; i < ROUNDS; i++) {
        char milliseconds[8];
        snprintf(milliseconds, sizeof milliseconds, "%d", 1 + i % 7);
        EXPECT_EQUAL(status_of(start("fork", milliseconds, NULL, NULL)), 0);
    }
    return finish();
}
