// The expectations of the programs. A failed expectation is printed and counted, and the program goes on. Then
// `finish()` returns the exit status 1. For C11 and C++17.
#ifndef EXPECT_H
#define EXPECT_H

#include <arpa/inet.h>
#include <errno.h>
#include <notify.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_MS = 30000 };

static int failures;

static inline void expect(int holds, const char *what, const char *file, int line) {
    if (holds) return;
    failures++;
    printf("%s:%d: %s\n", file, line, what);
    fflush(stdout);
}

static inline void expect_equal(long long is, long long wanted, const char *what, const char *file, int line) {
    if (is == wanted) return;
    failures++;
    printf("%s:%d: %s is %lld, not %lld\n", file, line, what, is, wanted);
    fflush(stdout);
}

static inline long long milliseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

static inline void rest(void) {
    struct timespec t = {0, 1000000};
    nanosleep(&t, NULL);
}

#define EXPECT(condition) expect(!!(condition), #condition, __FILE__, __LINE__)
#define EXPECT_EQUAL(is, wanted) expect_equal((long long)(is), (long long)(wanted), #is, __FILE__, __LINE__)
#define EXPECT_OK(call) EXPECT_EQUAL(call, NOTIFY_STATUS_OK)
// Waits until the condition holds, and then does not evaluate it again.
#define EVENTUALLY(condition) \
    do { \
        long long deadline_ = milliseconds() + PATIENCE_MS; \
        int holds_; \
        while (!(holds_ = !!(condition)) && milliseconds() < deadline_) rest(); \
        expect(holds_, "eventually " #condition, __FILE__, __LINE__); \
    } while (0)

static inline int finish(void) {
    if (!failures) puts("all as expected");
    return failures ? 1 : 0;
}

// MARK: Tokens

// The result of notify_check; -1 if it fails.
static inline int checked(int token) {
    int check = -1;
    return notify_check(token, &check) == NOTIFY_STATUS_OK ? check : -1;
}

// Registers for notify_check, and takes the first result.
static inline int watch(const char *name) {
    int token = -1;
    EXPECT_OK(notify_register_check(name, &token));
    EXPECT_EQUAL(checked(token), 1);
    return token;
}

// A synchronous call, which earlier posts, states and registrations precede on the bus (Rules, a.8).
static inline void fence(void) {
    int token = -1;
    if (notify_register_check("org.example.fence", &token) == NOTIFY_STATUS_OK) notify_cancel(token);
}

// MARK: Descriptors

// Identifies the file of a descriptor; 0 for none. Other threads open files too, so a closed number may be in use again
// at once.
static inline ino_t file_of(int fd) {
    struct stat file;
    return fstat(fd, &file) == 0 ? file.st_ino : 0;
}

static inline int is_readable(int fd, int timeout_ms) {
    struct pollfd p = {fd, POLLIN, 0};
    return poll(&p, 1, timeout_ms) == 1 && (p.revents & POLLIN);
}

// The next token that can be read; -1 if none comes, -2 at the end of the file.
static inline int next_token(int fd) {
    uint32_t bytes;
    if (!is_readable(fd, PATIENCE_MS)) return -1;
    ssize_t count = read(fd, &bytes, sizeof bytes);
    return count == (ssize_t)sizeof bytes ? (int)ntohl(bytes) : count == 0 ? -2 : -1;
}

// Waits until all posts of this process have reached its descriptors, ports and signals. They are served in the order
// of the posts, and this post is the last.
static inline void settle(void) {
    static int fd, token = -1;
    char name[64];
    snprintf(name, sizeof name, "org.example.settled.%d", (int)getpid());
    if (token < 0) EXPECT_OK(notify_register_file_descriptor(name, &fd, 0, &token));
    EXPECT_OK(notify_post(name));
    EXPECT_EQUAL(next_token(fd), token);
    while (is_readable(fd, 0)) next_token(fd);
}

// MARK: Other processes

extern char **environ;

// Starts this program again in another role. If `output` is not NULL, the program's output can be read from *output.
static inline pid_t start(const char *role, const char *first, const char *second, int *output) {
    char *arguments[] = {(char *)"program", (char *)role, (char *)first, (char *)second, NULL};
    posix_spawn_file_actions_t actions;
    int ends[2] = {-1, -1};
    pid_t process = -1;
    posix_spawn_file_actions_init(&actions);
    if (output) {
        EXPECT(pipe(ends) == 0);
        posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
        posix_spawn_file_actions_addclose(&actions, ends[0]);
        posix_spawn_file_actions_addclose(&actions, ends[1]);
    }
    EXPECT_EQUAL(posix_spawn(&process, "/proc/self/exe", &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    if (output) {
        close(ends[1]);
        *output = ends[0];
    }
    return process;
}

// The exit status, or the negative number of the signal.
static inline int status_of(pid_t process) {
    int status = 0;
    while (waitpid(process, &status, 0) < 0 && errno == EINTR) {}
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// Posts a name from another process, and waits for its end.
static inline void post_elsewhere(const char *name) { EXPECT_EQUAL(status_of(start("post", name, NULL, NULL)), 0); }

// Runs the roles that every program has. Call it first in main.
static inline void take_role(int argc, char **argv) {
    if (argc < 3 || strcmp(argv[1], "post")) return;
    exit(notify_post(argv[2]) == NOTIFY_STATUS_OK ? 0 : 1);
}

static inline int is_role(int argc, char **argv, const char *role) { return argc > 1 && !strcmp(argv[1], role); }

// Prints a line for the process that reads the output.
static inline void say(const char *line) {
    puts(line);
    fflush(stdout);
}

// Waits for a byte of another process. Returns whether it came.
static inline int heard(int output) {
    char byte;
    return is_readable(output, PATIENCE_MS) && read(output, &byte, 1) == 1;
}

#endif
