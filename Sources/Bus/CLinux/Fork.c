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
    // How often this thread has entered, and whether its fork has the gate closed.
    unsigned depth;
    bool is_closed;
} here[GATES];

static _Atomic bool is_used, is_torn;
static _Atomic unsigned long generation;
static _Atomic pid_t process;

void CLinux_holdOffFork(int gate) {
    if (here[gate].depth++ == 0) pthread_rwlock_rdlock(&gates[gate].lock);
}

void CLinux_allowFork(int gate) {
    // Unlocked first: a fork in a signal handler in between waits for nothing.
    if (here[gate].depth == 1) pthread_rwlock_unlock(&gates[gate].lock);
    here[gate].depth--;
}

static bool close_gate(Gate *gate) {
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += gate->patience % 1000 * 1000000;
    end.tv_sec += gate->patience / 1000 + end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    return pthread_rwlock_clockwrlock(&gate->lock, CLOCK_MONOTONIC, &end) == 0;
}

static void before_fork(void) {
    int code = errno;
    // The connections first, so that no other call waits meanwhile. A thread does not wait for itself.
    for (int i = GATES - 1; i >= 0; i--) here[i].is_closed = here[i].depth == 0 && close_gate(&gates[i]);
    errno = code;
}

static void in_parent(void) {
    for (int i = 0; i < GATES; i++) {
        if (here[i].is_closed) pthread_rwlock_unlock(&gates[i].lock);
        here[i].is_closed = false;
    }
}

static void in_child(void) {
    static const pthread_rwlock_t open = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
    atomic_store(&process, getpid());
    if (atomic_load(&is_used)) atomic_fetch_add(&generation, 1);
    if (!here[CLINUX_CALL].is_closed) atomic_store(&is_torn, true);
    for (int i = 0; i < GATES; i++) {
        gates[i].lock = open;
        here[i].is_closed = false;
    }
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
