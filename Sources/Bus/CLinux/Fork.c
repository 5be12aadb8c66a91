#define _GNU_SOURCE
#include "CLinux.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

// fork waits for the threads that are inside libdbus, so that a child finds its global locks free. The wait is bounded:
// an application may fork with a lock held that such a thread waits for.

typedef struct {
    pthread_rwlock_t lock;
    long patience;  // Milliseconds.
} Gate;

// libdbus holds no global lock in connect(2), which a stopped bus may hold up: fork does not wait long for that.
static Gate gates[] = {
    [CLINUX_CALL] = {PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP, 1000},
    [CLINUX_CONNECT] = {PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP, 50},
};
enum { GATES = sizeof gates / sizeof gates[0] };

static _Thread_local struct {
    // How often this thread has entered, whether it holds the lock meanwhile, and whether its fork has the gate closed.
    unsigned depth;
    bool is_holding, is_closed;
} here[GATES];
// A signal handler may fork while its thread prepares to.
static _Thread_local unsigned forks;

static _Atomic bool is_used, is_torn;
// How many threads are inside libdbus without the lock.
static _Atomic int strays;
static _Atomic unsigned long generation;
static _Atomic pid_t process;

static struct timespec in_milliseconds(long milliseconds) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    time.tv_nsec += milliseconds % 1000 * 1000000;
    time.tv_sec += milliseconds / 1000 + time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    return time;
}

// A thread that forks may wait for a lock that this one holds, in a handler which the program added before the library
// was loaded. So this wait is bounded, too.
static bool enter(Gate *gate) {
    if (pthread_rwlock_tryrdlock(&gate->lock) == 0) return true;
    struct timespec end = in_milliseconds(2 * gate->patience);
    return pthread_rwlock_clockrdlock(&gate->lock, CLOCK_MONOTONIC, &end) == 0;
}

void CLinux_holdOffFork(int gate) {
    if (here[gate].depth++ > 0) return;
    here[gate].is_holding = enter(&gates[gate]);
    if (!here[gate].is_holding) atomic_fetch_add(&strays, 1);
}

void CLinux_allowFork(int gate) {
    // Left first: a fork in a signal handler in between waits for nothing.
    if (here[gate].depth == 1) {
        if (here[gate].is_holding) pthread_rwlock_unlock(&gates[gate].lock);
        else atomic_fetch_sub(&strays, 1);
    }
    here[gate].depth--;
}

static bool close_gate(Gate *gate) {
    struct timespec end = in_milliseconds(gate->patience);
    return pthread_rwlock_clockwrlock(&gate->lock, CLOCK_MONOTONIC, &end) == 0;
}

static void before_fork(void) {
    if (forks++ > 0) return;
    int code = errno;
    // The connections first, so that no other call waits meanwhile. A thread does not wait for itself.
    for (int i = GATES - 1; i >= 0; i--) here[i].is_closed = here[i].depth == 0 && close_gate(&gates[i]);
    errno = code;
}

static void in_parent(void) {
    if (--forks > 0) return;
    for (int i = 0; i < GATES; i++) {
        if (here[i].is_closed) pthread_rwlock_unlock(&gates[i].lock);
        here[i].is_closed = false;
    }
}

static void in_child(void) {
    static const pthread_rwlock_t open = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
    if (forks > 0) forks--;
    atomic_store(&process, getpid());
    if (atomic_load(&is_used)) atomic_fetch_add(&generation, 1);
    int mine = 0;
    for (int i = 0; i < GATES; i++) {
        if (!here[i].is_closed || atomic_load(&strays) > 0) atomic_store(&is_torn, true);
        gates[i].lock = open;
        here[i].is_holding = here[i].is_closed = false;
        // What this thread was in before the fork, it leaves without a lock.
        mine += here[i].depth > 0;
    }
    atomic_store(&strays, mine);
}

// When the library is loaded: fork calls these handlers after those that an application has added later, which take the
// application's locks.
__attribute__((constructor)) static void watch_forks(void) {
    atomic_store(&process, getpid());
    pthread_atfork(before_fork, in_parent, in_child);
}

unsigned long CLinux_useBus(void) {
    if (!atomic_load_explicit(&is_used, memory_order_relaxed)) atomic_store(&is_used, true);
    return CLinux_forkGeneration();
}

unsigned long CLinux_forkGeneration(void) { return atomic_load_explicit(&generation, memory_order_relaxed); }

int CLinux_isForkTorn(void) { return atomic_load(&is_torn) && CLinux_forkGeneration() > 0; }

int CLinux_noticeFork(void) {
    if (atomic_load(&process) == getpid()) return 0;
    // Nothing has waited for other threads.
    for (int i = 0; i < GATES; i++) here[i].is_closed = false;
    in_child();
    return 1;
}
