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

// How often this thread has entered a gate.
_Thread_local unsigned CLinux_depths[GATES];
// Whether this thread holds the lock meanwhile, and whether its fork has the gate closed.
static _Thread_local bool is_holding[GATES], is_closed[GATES];
// A signal handler may fork while its thread prepares to.
static _Thread_local unsigned forks;

int CLinux_isUsed;
unsigned long CLinux_generation;
static _Atomic bool is_torn;
// How many threads are inside libdbus without the lock.
static _Atomic int strays;
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
void CLinux_enter(int gate) {
    pthread_rwlock_t *lock = &gates[gate].lock;
    is_holding[gate] = pthread_rwlock_tryrdlock(lock) == 0;
    if (is_holding[gate]) return;
    struct timespec end = in_milliseconds(2 * gates[gate].patience);
    is_holding[gate] = pthread_rwlock_clockrdlock(lock, CLOCK_MONOTONIC, &end) == 0;
    if (!is_holding[gate]) atomic_fetch_add(&strays, 1);
}

void CLinux_leave(int gate) {
    if (is_holding[gate]) pthread_rwlock_unlock(&gates[gate].lock);
    else atomic_fetch_sub(&strays, 1);
}

static bool close_gate(Gate *gate) {
    struct timespec end = in_milliseconds(gate->patience);
    return pthread_rwlock_clockwrlock(&gate->lock, CLOCK_MONOTONIC, &end) == 0;
}

static void before_fork(void) {
    if (forks++ > 0) return;
    int code = errno;
    // The connections first, so that no other call waits meanwhile. A thread does not wait for itself.
    for (int i = GATES - 1; i >= 0; i--) is_closed[i] = CLinux_depths[i] == 0 && close_gate(&gates[i]);
    errno = code;
}

static void in_parent(void) {
    if (--forks > 0) return;
    for (int i = 0; i < GATES; i++) {
        if (is_closed[i]) pthread_rwlock_unlock(&gates[i].lock);
        is_closed[i] = false;
    }
}

static void in_child(void) {
    static const pthread_rwlock_t open = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
    if (forks > 0) forks--;
    atomic_store(&process, getpid());
    if (CLinux_isUsed) __atomic_fetch_add(&CLinux_generation, 1, __ATOMIC_SEQ_CST);
    int mine = 0;
    for (int i = 0; i < GATES; i++) {
        if (!is_closed[i] || atomic_load(&strays) > 0) atomic_store(&is_torn, true);
        gates[i].lock = open;
        is_holding[i] = is_closed[i] = false;
        // What this thread was in before the fork, it leaves without a lock.
        mine += CLinux_depths[i] > 0;
    }
    atomic_store(&strays, mine);
}

// When the library is loaded: fork calls these handlers after those that an application has added later, which take the
// application's locks.
__attribute__((constructor)) static void watch_forks(void) {
    atomic_store(&process, getpid());
    pthread_atfork(before_fork, in_parent, in_child);
}

int CLinux_isForkTorn(void) { return atomic_load(&is_torn) && CLinux_forkGeneration() > 0; }

int CLinux_noticeFork(void) {
    if (atomic_load(&process) == getpid()) return 0;
    // Nothing has waited for other threads.
    for (int i = 0; i < GATES; i++) is_closed[i] = false;
    forks = 0;
    in_child();
    return 1;
}
