// The roles of a benchmark peer, the same for every C library. README.md in this folder describes the command line and
// the output. The Swift peer has the same roles.
#include "peer.h"

enum { WARM_UP_ROUND_TRIPS = 200 };

static enum { IDLE, ECHO, PING, SINK, LISTEN } role = IDLE;
static const char *observed = "";
static const char *reply = "";
static long wanted;
static long count;
static long long *stamps;
static long long posted_at;
static long long last_at;

void interface_of(const char *name, char interface[PEER_INTERFACE_MAX]) {
    int length = snprintf(interface, PEER_INTERFACE_MAX, PEER_INTERFACE "%s", name);
    if (length >= PEER_INTERFACE_MAX) end_with(name, "the name is too long for an interface");
}

void rule_of(const char *name, char rule[PEER_RULE_MAX]) {
    char interface[PEER_INTERFACE_MAX];
    interface_of(name, interface);
    snprintf(rule, PEER_RULE_MAX, "type='signal',interface='%s',path='" PEER_PATH "'", interface);
}

static long long *room_for(long n) {
    long long *room = calloc((size_t)n, sizeof *room);
    if (!room) end_with("calloc", strerror(errno));
    // Touched now, so that the measurement has no page faults.
    memset(room, 1, (size_t)n * sizeof *room);
    return room;
}

void received(const char *name) {
    if (strcmp(name, observed) != 0) return;
    switch (role) {
    case ECHO:
        bus_post(reply);
        count++;
        break;
    case PING: {
        long long at = now();
        if (count >= WARM_UP_ROUND_TRIPS) stamps[count - WARM_UP_ROUND_TRIPS] = at - posted_at;
        if (++count == wanted) break;
        posted_at = now();
        bus_post(reply);
        break;
    }
    case SINK:
        if (++count == wanted) last_at = now();
        break;
    case LISTEN:
        if (count < wanted) stamps[count++] = now();
        break;
    case IDLE:
        break;
    }
}

static void print_stamps(long n) {
    printf("result stamps=");
    for (long i = 0; i < n; i++) printf("%s%lld", i ? "," : "", stamps[i]);
    putchar('\n');
}

static void wait_for_all(void) {
    while (count < wanted) bus_step();
}

// Responds to n posts, or to any number if n is 0.
static void echo(const char *name, const char *answer, long n) {
    role = ECHO;
    observed = name;
    reply = answer;
    bus_observe(name);
    say_ready();
    while (n == 0 || count < n) bus_step();
    bus_flush();
}

static void ping(const char *name, const char *answer, long n) {
    role = PING;
    observed = answer;
    reply = name;
    stamps = room_for(n);
    wanted = n + WARM_UP_ROUND_TRIPS;
    bus_observe(answer);
    say_ready();
    posted_at = now();
    bus_post(name);
    wait_for_all();
    qsort(stamps, (size_t)n, sizeof *stamps, ascending);
    printf("result count=%ld median-ns=%lld p99-ns=%lld\n", n, stamps[n / 2], stamps[n - 1 - n / 100]);
}

static void sink(const char *name, long n) {
    role = SINK;
    observed = name;
    wanted = n;
    bus_observe(name);
    say_ready();
    wait_for_all();
    printf("result received=%ld last-ns=%lld\n", count, last_at);
}

static void flood(const char *name, long n) {
    say_ready();
    long long start = now();
    for (long i = 0; i < n; i++) bus_post(name);
    bus_flush();
    printf("result posted=%ld start-ns=%lld end-ns=%lld\n", n, start, now());
}

static void listen(const char *name, long n) {
    role = LISTEN;
    observed = name;
    wanted = n;
    stamps = room_for(n);
    bus_observe(name);
    say_ready();
    wait_for_all();
    print_stamps(n);
}

static void post(const char *name, long n, long interval) {
    stamps = room_for(n);
    say_ready();
    for (long i = 0; i < n; i++) {
        struct timespec pause = {interval / 1000000, interval % 1000000 * 1000};
        nanosleep(&pause, NULL);
        stamps[i] = now();
        bus_post(name);
        bus_flush();
    }
    print_stamps(n);
}

static void register_names(long n, const char *prefix) {
    long long start = now();
    bus_observe_many(prefix, n);
    long long elapsed = now() - start;
    say_ready();
    printf("result registered=%ld elapsed-ns=%lld\n", n, elapsed);
    fflush(stdout);
    for (;;) bus_step();
}

static void idle(const char *name) {
    observed = name;
    bus_observe(name);
    say_ready();
    for (;;) bus_step();
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    int has = argc - 2;
    char **args = argv + 2;
    bus_connect();
    if (!strcmp(name, "echo") && has == 2) echo(args[0], args[1], 0);
    else if (!strcmp(name, "echo") && has == 3) echo(args[0], args[1], number(args[2]));
    else if (!strcmp(name, "ping") && has == 3) ping(args[0], args[1], number(args[2]));
    else if (!strcmp(name, "sink") && has == 2) sink(args[0], number(args[1]));
    else if (!strcmp(name, "flood") && has == 2) flood(args[0], number(args[1]));
    else if (!strcmp(name, "listen") && has == 2) listen(args[0], number(args[1]));
    else if (!strcmp(name, "post") && has == 3) post(args[0], number(args[1]), number(args[2]));
    else if (!strcmp(name, "register") && has == 2) register_names(number(args[0]), args[1]);
    else if (!strcmp(name, "idle") && has == 1) idle(args[0]);
    else end_with(name, "no such role, or wrong arguments for it");
    return 0;
}
