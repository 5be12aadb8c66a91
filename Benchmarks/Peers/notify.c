// notify(3) as a C program uses it, from the shared library. README.md in this folder describes the command line.
#define _GNU_SOURCE
#include "common.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <notify.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static void expect_ok(uint32_t status, const char *what) {
    if (status == NOTIFY_STATUS_OK) return;
    fprintf(stderr, "peer: %s: status %u\n", what, status);
    exit(1);
}

static int registered(const char *name) {
    int token;
    expect_ok(notify_register_check(name, &token), "notify_register_check");
    return token;
}

static void flood(const char *name, long count) {
    // The first use connects. The other peers, too, connect before their clock starts.
    expect_ok(notify_post("BenchConnected"), "notify_post");
    say_ready();
    long long start = now();
    for (long i = 0; i < count; i++) expect_ok(notify_post(name), "notify_post");
    printf("result posted=%ld start-ns=%lld end-ns=%lld\n", count, start, now());
}

static const char *churned;

static void register_and_cancel(long turn) {
    (void)turn;
    expect_ok(notify_cancel(registered(churned)), "notify_cancel");
}

static void churn(const char *name, long count) {
    registered("BenchConnected");
    churned = name;
    say_ready();
    time_calls(count, register_and_cancel);
}

// MARK: notify_check

static volatile sig_atomic_t system_calls;

static void count_system_call(int number) {
    (void)number;
    system_calls++;
}

// From here on the kernel counts the system calls of this thread instead of executing them, except the calls that print
// the result and exit.
static void count_system_calls(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    struct sigaction action = {.sa_handler = count_system_call};
    sigaction(SIGSYS, &action, NULL);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        end_with("seccomp", strerror(errno));
    // This proves that the filter counts.
    getppid();
    if (system_calls != 1) end_with("seccomp", "a system call was not counted");
    system_calls = 0;
}

static void check(const char *name, long count) {
    int token = registered(name), posted = 0, all = 0;
    say_ready();
    long long start = now();
    for (long i = 0; i < count; i++) {
        expect_ok(notify_check(token, &posted), "notify_check");
        all += posted;
    }
    long long elapsed = now() - start;
    count_system_calls();
    for (long i = 0; i < count; i++) all += (int)notify_check(token, &posted);
    // Only the first check reports “posted”, because there are no posts.
    char line[128];
    int length = snprintf(line, sizeof line, "result count=%ld elapsed-ns=%lld system-calls=%d answers=%d\n", count, elapsed,
                          (int)system_calls, all);
    if (write(STDOUT_FILENO, line, (size_t)length) != length) _exit(1);
    _exit(0);
}

// MARK: Many registrations

static void duplicates(const char *name, long count) {
    registered("BenchConnected");
    int *tokens = calloc((size_t)count, sizeof *tokens);
    if (!tokens) end_with("calloc", strerror(errno));
    say_ready();
    long long start = now();
    for (long i = 0; i < count; i++) tokens[i] = registered(name);
    long long all = now();
    for (long i = 0; i < count; i++) expect_ok(notify_cancel(tokens[i]), "notify_cancel");
    printf("result registered=%ld elapsed-ns=%lld cancelled-ns=%lld\n", count, all - start, now() - all);
}

enum { THREADS = 4 };
static long turns_of_each;
static const char *shared_name;

static void *register_post_cancel(void *context) {
    (void)context;
    for (long i = 0; i < turns_of_each; i++) {
        int token = registered(shared_name);
        expect_ok(notify_post(shared_name), "notify_post");
        expect_ok(notify_cancel(token), "notify_cancel");
    }
    return NULL;
}

static void parallel(const char *name, long count) {
    pthread_t threads[THREADS];
    registered("BenchConnected");
    shared_name = name;
    turns_of_each = count / THREADS;
    say_ready();
    long long start = now();
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, register_post_cancel, NULL)) end_with("pthread_create", "failed");
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    printf("result turns=%ld elapsed-ns=%lld\n", turns_of_each * THREADS, now() - start);
}

// MARK: State

static int state_token;

static void get_state(long turn) {
    uint64_t state;
    (void)turn;
    expect_ok(notify_get_state(state_token, &state), "notify_get_state");
}

static void set_state(long turn) { expect_ok(notify_set_state(state_token, (uint64_t)turn), "notify_set_state"); }

static void state(void (*call)(long), const char *name, long count) {
    uint64_t value;
    state_token = registered(name);
    // notifyd may still be starting.
    for (int i = 0; notify_get_state(state_token, &value) != NOTIFY_STATUS_OK && i < 1000; i++) usleep(10000);
    say_ready();
    time_calls(count, call);
}

int main(int argc, char **argv) {
    if (argc != 4) end_with("arguments", "a role, a name and a number were expected");
    const char *role = argv[1], *name = argv[2];
    long count = number(argv[3]);
    if (!strcmp(role, "flood")) flood(name, count);
    else if (!strcmp(role, "churn")) churn(name, count);
    else if (!strcmp(role, "check")) check(name, count);
    else if (!strcmp(role, "duplicates")) duplicates(name, count);
    else if (!strcmp(role, "parallel")) parallel(name, count);
    else if (!strcmp(role, "get")) state(get_state, name, count);
    else if (!strcmp(role, "set")) state(set_state, name, count);
    else end_with(role, "no such role");
    return 0;
}
