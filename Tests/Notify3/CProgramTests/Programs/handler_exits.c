// handler_exits [ROUNDS]: calls exit inside a signal handler that interrupts these functions, as many programs do at
// SIGTERM.
#include "expect.h"

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

int main(int argc, char **argv) {
    take_role(argc, argv);
    if (is_role(argc, argv, "loop")) post_until_the_signal();
    int rounds = argc > 1 ? atoi(argv[1]) : 20;
    for (int i = 0; i < rounds; i++) {
        int output = -1;
        pid_t process = start("loop", NULL, NULL, &output);
        struct timespec busy = {0, 1000000 + i * 137000 % 7000000};
        EXPECT(heard(output));
        nanosleep(&busy, NULL);
        kill(process, SIGTERM);
        EXPECT_EQUAL(end_of(process), 0);
        close(output);
    }
    return finish();
}
