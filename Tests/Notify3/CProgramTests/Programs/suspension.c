// Suspension of tokens and processes.
#include "expect.h"
#include <notify_private.h>

static void one_notification_follows(void) {
    int fd = -1, held = -1, running = -1, running_fd = -1;
    EXPECT_OK(notify_register_file_descriptor("org.example.held", &fd, 0, &held));
    EXPECT_OK(notify_register_file_descriptor("org.example.held", &running_fd, 0, &running));
    // Rules, a.10: suspensions nest and are counted.
    for (int i = 0; i < 3; i++) EXPECT_OK(notify_suspend(held));
    for (int i = 0; i < 4; i++) EXPECT_OK(notify_post("org.example.held"));
    // Another token of the name is still notified.
    for (int i = 0; i < 4; i++) EXPECT_EQUAL(next_token(running_fd), running);
    for (int i = 0; i < 2; i++) {
        EXPECT_OK(notify_resume(held));
        settle();
        EXPECT(!is_readable(fd, 0));
    }
    // The last resumption delivers one notification.
    EXPECT_OK(notify_resume(held));
    EXPECT_EQUAL(next_token(fd), held);
    settle();
    EXPECT(!is_readable(fd, 0));
    // Without a pending post nothing is delivered. A resumption without a suspension has no effect.
    EXPECT_OK(notify_suspend(held));
    EXPECT_OK(notify_resume(held));
    EXPECT_OK(notify_resume(held));
    settle();
    EXPECT(!is_readable(fd, 0));
    EXPECT_OK(notify_post("org.example.held"));
    EXPECT_EQUAL(next_token(fd), held);
    EXPECT_EQUAL(next_token(running_fd), running);

    // Cancelling drops the pending notification. The descriptor stays open for its other token.
    int also = -1;
    EXPECT_OK(notify_register_file_descriptor("org.example.also", &fd, NOTIFY_REUSE, &also));
    EXPECT_OK(notify_suspend(held));
    EXPECT_OK(notify_post("org.example.held"));
    settle();
    EXPECT_OK(notify_cancel(held));
    EXPECT_EQUAL(notify_resume(held), NOTIFY_STATUS_INVALID_TOKEN);
    settle();
    EXPECT(!is_readable(fd, 0));
    EXPECT_OK(notify_cancel(also));
    EXPECT_OK(notify_cancel(running));
}

// The other process of `whole_processes`: prints each token that it reads.
static int listen_role(const char *name) {
    int fd = -1, token = -1;
    EXPECT_OK(notify_register_file_descriptor(name, &fd, 0, &token));
    say("!");
    while (next_token(fd) == token) say("!");
    return failures;
}

static void whole_processes(void) {
    // a.3: notify_suspend_pid and notify_resume_pid.
    int output = -1;
    char line[2];
    pid_t listener = start("listen", "org.example.process", NULL, &output);
    EXPECT(heard(output) && heard(output));
    // notifyd may not have heard of the listener yet.
    EVENTUALLY(notify_suspend_pid(listener) == NOTIFY_STATUS_OK);
    EXPECT_OK(notify_suspend_pid(listener));
    for (int i = 0; i < 3; i++) EXPECT_OK(notify_post("org.example.process"));
    // Suspensions are counted: one resumption is not enough.
    EXPECT_OK(notify_resume_pid(listener));
    settle();
    EXPECT(!is_readable(output, 100));
    EXPECT_OK(notify_resume_pid(listener));
    EXPECT(heard(output) && heard(output));
    EXPECT_OK(notify_post("org.example.process"));
    EXPECT(is_readable(output, PATIENCE_MS) && read(output, line, 2) == 2);
    EXPECT(!is_readable(output, 0));
    kill(listener, SIGKILL);
    status_of(listener);
    // INVALID_REQUEST, as soon as the bus has noticed the end of the process.
    EVENTUALLY(notify_suspend_pid(listener) == NOTIFY_STATUS_INVALID_REQUEST);
    EXPECT_EQUAL(notify_resume_pid(-1), NOTIFY_STATUS_INVALID_REQUEST);
    close(output);
}

int main(int argc, char **argv) {
    take_role(argc, argv);
    if (is_role(argc, argv, "listen")) return listen_role(argv[2]);
    one_notification_follows();
    whole_processes();
    return finish();
}
