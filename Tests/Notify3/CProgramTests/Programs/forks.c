// fork, exec, and notify_set_options.
#include "expect.h"
#include <fcntl.h>
#include <notify_private.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>

static int inherited = -1, inherited_fd = -1, inherited_self = -1;

static char reserved[64];

static pid_t forked(int (*body)(void)) {
    fflush(stdout);
    pid_t process = fork();
    if (process == 0) {
        int status = body();
        fflush(stdout);
        _exit(status);
    }
    return process;
}

static int grandchild(void) {
    EXPECT_OK(notify_post("org.example.fork.grandchild"));
    return failures;
}

static void *post_in_thread(void *context) {
    for (int i = 0; i < 1000; i++) EXPECT_OK(notify_post("self.fork"));
    EXPECT_OK(notify_post("org.example.fork.thread"));
    return context;
}

// The checks in a forked child: Rules, a.12.
static int child(void) {
    int token = -1, check, fd = -1;
    uint64_t state;
    // The parent's tokens are invalid.
    EXPECT(!notify_is_valid_token(inherited));
    EXPECT_EQUAL(notify_check(inherited, &check), NOTIFY_STATUS_INVALID_TOKEN);
    EXPECT_EQUAL(notify_check(inherited_self, &check), NOTIFY_STATUS_INVALID_TOKEN);
    EXPECT_EQUAL(notify_cancel(inherited), NOTIFY_STATUS_INVALID_TOKEN);
    EXPECT_EQUAL(notify_suspend(inherited), NOTIFY_STATUS_INVALID_TOKEN);
    EXPECT_EQUAL(notify_get_state(inherited, &state), NOTIFY_STATUS_INVALID_TOKEN);
    EXPECT_EQUAL(notify_set_state(inherited, 1), NOTIFY_STATUS_INVALID_TOKEN);
    // The child posts through its own connection, and so do its thread and its own child.
    EXPECT_OK(notify_post("org.example.fork.child"));
    EXPECT_OK(notify_post(reserved));
    pthread_t thread;
    EXPECT_EQUAL(pthread_create(&thread, NULL, post_in_thread, NULL), 0);
    for (int i = 0; i < 1000; i++) EXPECT_OK(notify_post("self.fork"));
    pthread_join(thread, NULL);
    EXPECT_EQUAL(status_of(forked(grandchild)), 0);
    // New registrations are refused.
    EXPECT_EQUAL(notify_register_check("org.example.fork", &token), NOTIFY_STATUS_OPT_DISABLE);
    EXPECT_EQUAL(token, NOTIFY_TOKEN_INVALID);
    EXPECT_EQUAL(notify_register_plain("org.example.fork", &token), NOTIFY_STATUS_OPT_DISABLE);
    EXPECT_EQUAL(notify_register_signal("org.example.fork", SIGUSR1, &token), NOTIFY_STATUS_OPT_DISABLE);
    EXPECT_EQUAL(notify_register_file_descriptor("org.example.fork", &fd, 0, &token), NOTIFY_STATUS_OPT_DISABLE);
    // Names of the process work.
    EXPECT_OK(notify_register_check("self.fork", &token));
    EXPECT_EQUAL(checked(token), 1);
    EXPECT_OK(notify_post("self.fork"));
    EXPECT_EQUAL(checked(token), 1);
    EXPECT_EQUAL(checked(token), 0);
    EXPECT_OK(notify_set_state(token, 9));
    EXPECT_OK(notify_get_state(token, &state));
    EXPECT_EQUAL(state, 9);
    int fd_token = -1;
    EXPECT_OK(notify_register_file_descriptor("self.fork", &fd, 0, &fd_token));
    EXPECT_OK(notify_post("self.fork"));
    EXPECT_EQUAL(next_token(fd), fd_token);
    EXPECT_OK(notify_cancel(fd_token));
    EXPECT_OK(notify_cancel(token));
    // A second call has no effect.
    _notify_fork_child();
    return failures;
}

enum { FILES = 64 };
static int service_files[FILES];
static ino_t service_inodes[FILES];

// Each descriptor still refers to the file that it referred to before this process was forked.
static int worker(void) {
    struct stat now;
    for (int i = 0; i < FILES; i++) {
        EXPECT_EQUAL(fstat(service_files[i], &now), 0);
        EXPECT_EQUAL(now.st_ino, service_inodes[i]);
    }
    return failures;
}

// A child that closes its inherited descriptors, as services do, and opens other files with these numbers. Its own
// children keep the files.
static int service(void) {
    struct stat file;
    for (int fd = 3; fd < 1024; fd++) close(fd);
    for (int i = 0; i < FILES; i++) {
        service_files[i] = memfd_create("file", 0);
        EXPECT_EQUAL(fstat(service_files[i], &file), 0);
        service_inodes[i] = file.st_ino;
    }
    pid_t process = fork();
    if (process == 0) {
        int status = worker();
        fflush(stdout);
        _exit(status);
    }
    return status_of(process);
}

// A program that registers and then becomes a daemon, which continues in a child.
static int daemon_role(void) {
    int token = watch("org.example.fork.before");
    if (daemon(1, 1) != 0) return 9;
    EXPECT_EQUAL(checked(token), -1);
    EXPECT_OK(notify_post(failures ? "org.example.fork.failed" : "org.example.fork.daemon"));
    return failures;
}

static int exec_child(void) {
    // After exec all functions work again.
    execl("/proc/self/exe", "program", "whole", (char *)NULL);
    return 9;
}

static int whole_role(void) {
    int token = watch("org.example.fork.exec");
    EXPECT_OK(notify_post("org.example.fork.exec"));
    fence();
    EXPECT_EQUAL(checked(token), 1);
    EXPECT_OK(notify_post("org.example.fork"));
    return failures;
}

static void options(void) {
    // a.3: NOTIFY_OPT_DISABLE holds until NOTIFY_OPT_ENABLE. Tokens stay valid, and can be checked and cancelled.
    int token = watch("org.example.options"), other = -1, fd = -1;
    uint64_t state;
    EXPECT_OK(notify_post("org.example.options"));
    fence();
    notify_set_options(NOTIFY_OPT_DISABLE);
    EXPECT_EQUAL(notify_post("org.example.options"), NOTIFY_STATUS_OPT_DISABLE);
    EXPECT_EQUAL(notify_register_check("org.example.options", &other), NOTIFY_STATUS_OPT_DISABLE);
    EXPECT_EQUAL(notify_register_file_descriptor("org.example.options", &fd, 0, &other), NOTIFY_STATUS_OPT_DISABLE);
    EXPECT_EQUAL(notify_suspend(token), NOTIFY_STATUS_OPT_DISABLE);
    EXPECT_EQUAL(notify_resume(token), NOTIFY_STATUS_OPT_DISABLE);
    EXPECT_EQUAL(notify_get_state(token, &state), NOTIFY_STATUS_OPT_DISABLE);
    EXPECT_EQUAL(notify_set_state(token, 1), NOTIFY_STATUS_OPT_DISABLE);
    EXPECT(notify_is_valid_token(token));
    EXPECT_EQUAL(checked(token), 1);
    EXPECT_OK(notify_register_check("self.options", &other));
    EXPECT_OK(notify_post("self.options"));
    EXPECT_EQUAL(checked(other), 1);
    EXPECT_OK(notify_cancel(other));
    notify_set_options(NOTIFY_OPT_ENABLE);
    EXPECT_OK(notify_post("org.example.options"));
    fence();
    EXPECT_EQUAL(checked(token), 1);
    notify_set_options(NOTIFY_OPT_DISPATCH | NOTIFY_OPT_REGEN | NOTIFY_OPT_FILTERED | NOTIFY_OPT_OLD_IPC);
    EXPECT_OK(notify_cancel(token));
}

int main(int argc, char **argv) {
    take_role(argc, argv);
    if (is_role(argc, argv, "whole")) return whole_role();
    if (is_role(argc, argv, "daemon")) return daemon_role();
    // If a process has not used the functions, its forked child can use all of them.
    EXPECT_EQUAL(status_of(forked(whole_role)), 0);

    int spare_fd = -1, spare = -1;
    EXPECT_OK(notify_register_file_descriptor("org.example.fork", &inherited_fd, 0, &inherited));
    EXPECT_OK(notify_register_check("self.inherited", &inherited_self));
    EXPECT_OK(notify_register_file_descriptor("org.example.fork", &spare_fd, 0, &spare));
    snprintf(reserved, sizeof reserved, "user.uid.%d.fork", (int)geteuid());
    const char *names[] = {"org.example.fork.child", "org.example.fork.thread", "org.example.fork.grandchild", reserved,
                           "org.example.fork.daemon"};
    enum { NAMES = sizeof names / sizeof names[0] };
    int tokens[NAMES];
    for (int i = 0; i < NAMES; i++) tokens[i] = watch(names[i]);
    EXPECT_EQUAL(status_of(forked(child)), 0);
    EXPECT_EQUAL(status_of(start("daemon", NULL, NULL, NULL)), 0);
    for (int i = 0; i < NAMES; i++) EVENTUALLY(checked(tokens[i]) == 1);
    for (int i = 0; i < NAMES; i++) EXPECT_OK(notify_cancel(tokens[i]));
    EXPECT(!is_readable(inherited_fd, 0));
    EXPECT_EQUAL(status_of(forked(service)), 0);
    EXPECT_EQUAL(status_of(forked(exec_child)), 0);
    EXPECT_EQUAL(next_token(inherited_fd), inherited);
    EXPECT_EQUAL(next_token(spare_fd), spare);
    // The parent works as before.
    EXPECT_OK(notify_post("org.example.fork"));
    EXPECT_EQUAL(next_token(inherited_fd), inherited);
    EXPECT_EQUAL(checked(inherited_self), 1);
    EXPECT_OK(notify_cancel(inherited));
    EXPECT_OK(notify_cancel(spare));
    options();
    return finish();
}
