// Each word of the command line shows one way in which a program can receive posts.
//
// The program needs nothing of this project and also builds on Darwin. Only `port` would differ there: it would have to
// receive a Mach message.

#include <arpa/inet.h>
#include <notify.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>
#ifdef __BLOCKS__
#include <dispatch/dispatch.h>
#endif

static const char usage[] =
    "usage: notify-tool post NAME...\n"
    "       notify-tool descriptor|port|signal|dispatch|check NAME...   print each post until the program is ended\n"
    "       notify-tool state NAME [VALUE]                              print or set the 64 bits of a name\n";

enum { MOST = 64 };

// One registration token for each name.
static int tokens[MOST];
static char **names;
static int count;

static void expect(uint32_t status, const char *what) {
    if (status == NOTIFY_STATUS_OK) return;
    fprintf(stderr, "notify-tool: %s: status %u\n", what, status);
    exit(EX_UNAVAILABLE);
}

static void print_name_of(int token) {
    for (int i = 0; i < count; i++) {
        uint64_t state = 0;
        if (tokens[i] != token) continue;
        printf("%s", names[i]);
        // The state may belong to a later post.
        if (notify_get_state(token, &state) == NOTIFY_STATUS_OK && state) printf(" %llu", (unsigned long long)state);
        printf("\n");
        fflush(stdout);
    }
}

static void print_changed_names(void) {
    for (int i = 0; i < count; i++) {
        int changed = 0;
        expect(notify_check(tokens[i], &changed), names[i]);
        if (changed) print_name_of(tokens[i]);
    }
}

static void say_listening(void) {
    printf("listening\n");
    fflush(stdout);
}

// MARK: The ways

static void print_tokens_from(int fd) {
    uint32_t token;
    say_listening();
    while (read(fd, &token, sizeof token) == (ssize_t)sizeof token) print_name_of((int)ntohl(token));
}

// Uses one descriptor for all names: the first registration makes it, and the others reuse it.
static void descriptor(void) {
    int fd = -1;
    for (int i = 0; i < count; i++)
        expect(notify_register_file_descriptor(names[i], &fd, i ? NOTIFY_REUSE : 0, &tokens[i]), names[i]);
    print_tokens_from(fd);
}

static void port(void) {
    mach_port_t port = 0;
    for (int i = 0; i < count; i++)
        expect(notify_register_mach_port(names[i], &port, i ? NOTIFY_REUSE : 0, &tokens[i]), names[i]);
    print_tokens_from((int)port);
}

// Uses one signal for all names. sigwait replaces a signal handler, in which few functions may be called.
static void signals(void) {
    sigset_t set;
    int number;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (int i = 0; i < count; i++) {
        int first;
        expect(notify_register_signal(names[i], SIGUSR1, &tokens[i]), names[i]);
        // The first check always reports a change.
        expect(notify_check(tokens[i], &first), names[i]);
    }
    say_listening();
    while (sigwait(&set, &number) == 0) print_changed_names();
}

#ifdef __BLOCKS__
static void queue(void) {
    for (int i = 0; i < count; i++) {
        uint32_t status = notify_register_dispatch(names[i], &tokens[i], dispatch_get_main_queue(), ^(int token) {
            print_name_of(token);
        });
        expect(status, names[i]);
    }
    say_listening();
    dispatch_main();
}
#endif

// For programs that check at times of their choice, such as a cache before each lookup.
static void check(void) {
    for (int i = 0; i < count; i++) {
        int first;
        expect(notify_register_check(names[i], &tokens[i]), names[i]);
        expect(notify_check(tokens[i], &first), names[i]);
    }
    say_listening();
    for (;; poll(NULL, 0, 100)) print_changed_names();
}

static void post(void) {
    for (int i = 0; i < count; i++) expect(notify_post(names[i]), names[i]);
}

// The state needs a registration. It is lost when the last registration of all processes ends.
static void state(void) {
    uint64_t value;
    expect(notify_register_check(names[0], &tokens[0]), names[0]);
    if (count > 1) {
        expect(notify_set_state(tokens[0], strtoull(names[1], NULL, 10)), names[0]);
    } else {
        expect(notify_get_state(tokens[0], &value), names[0]);
        printf("%llu\n", (unsigned long long)value);
    }
}

static const struct {
    const char *word;
    void (*run)(void);
} ways[] = {
    {"post", post}, {"descriptor", descriptor}, {"port", port}, {"signal", signals}, {"check", check}, {"state", state},
#ifdef __BLOCKS__
    {"dispatch", queue},
#endif
};

int main(int argc, char **argv) {
    names = argv + 2;
    count = argc - 2;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (count < 1 || count > MOST || strcmp(argv[1], ways[i].word) != 0) continue;
        ways[i].run();
        return 0;
    }
    fputs(usage, stderr);
    return EX_USAGE;
}
