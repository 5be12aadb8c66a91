// Calls exit or fork inside a signal handler that interrupts these functions, as programs do at SIGTERM or in crash
// handlers.
#include "expect.h"
#include <pthread.h>
#include <sys/time.h>

enum { EXITS = 20, FORKS = 14 };

static void exit_here(int signal) {
    (void)signal;
    exit(0);
}

// The main thread may be anywhere in the library, or in malloc, when the signal comes.
static void post_until_the_signal(void) {
    int token;
    EXPECT_OK(notify_register_check("org.example.handler", &token));
    signal(SIGTERM, exit_here);
    say("ready");
    for (;;) {
        int other = -1;
        notify_post("org.example.handler");
        notify_register_check("org.example.handler.other", &other);
        notify_cancel(other);
    }
}

// The exit status, or the negative number of the signal; -1000 if the process hangs.
static int end_of(pid_t process) {
    int status = 0;
    for (int i = 0; i < PATIENCE_MS; i++) {
        if (waitpid(process, &status, WNOHANG) == process) {
            return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
        }
        rest();
    }
    kill(process, SIGKILL);
    status_of(process);
    return -1000;
}

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
    if (is_role(argc, argv, "loop")) post_until_the_signal();
    if (is_role(argc, argv, "fork")) return one_fork(argv[2]);
    for (int i = 0; i < EXITS; i++) {
        int output = -1;
        pid_t process = start("loop", NULL, NULL, &output);
        struct timespec busy = {0, 1000000 + i * 137000 % 7000000};
        EXPECT(heard(output));
        nanosleep(&busy, NULL);
        kill(process, SIGTERM);
        EXPECT_EQUAL(end_of(process), 0);
        close(output);
    }
    for (int i = 0; i < FORKS; i++) {
        char milliseconds[8];
        snprintf(milliseconds, sizeof milliseconds, "%d", 1 + i % 7);
        EXPECT_EQUAL(status_of(start("fork", milliseconds, NULL, NULL)), 0);
    }
    return finish();
}
