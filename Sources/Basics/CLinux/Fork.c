#define _GNU_SOURCE
#include "CLinux.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

// fork waits for the threads inside libdbus, so that a child finds the global locks of libdbus free. The wait is
// bounded: an application may fork while it holds a lock that such a thread waits for.

typedef struct {
    pthread_rwlock_t lock;
    long patience;  // Milliseconds.
} Gate;

// libdbus holds no global lock in connect(2), which a stopped bus may block. So fork does not wait long for it.
static Gate gates[] = {
    [CLINUX_CALL] = {PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP, 1000},
    [CLINUX_CONNECT] = {PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP, 50},
};
enum { GATES = sizeof gates / sizeof gates[0] };

// The nesting depth of this thread in each gate.
_Thread_local unsigned CLinux_depths[GATES];
// Whether this thread holds the gate's lock for its call, and whether its fork has closed the gate.
static _Thread_local bool is_holding[GATES], is_closed[GATES];
// Counts nested forks: a signal handler may fork while its thread prepares to fork.
static _Thread_local unsigned forks;

int CLinux_isUsed;
unsigned long CLinux_generation;
static _Atomic bool is_torn;
// The number of threads inside libdbus without the lock.
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

// This wait is bounded, too: a forking thread may wait for a lock that this thread holds, in a fork handler that the
// program registered before the library was loaded.
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
    // The connect gate first, because closing it last would block other calls during its wait. A thread does not wait
    // for itself.
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
        // This thread is still inside the gates that it entered before the fork, and leaves them without a lock.
        mine += CLinux_depths[i] > 0;
    }
    atomic_store(&strays, mine);
}

// Registered when the library is loaded: fork runs these handlers after the handlers that an application registers
// later, which take the application's locks.
__attribute__((constructor)) static void watch_forks(void) {
    atomic_store(&process, getpid());
    pthread_atfork(before_fork, in_parent, in_child);
}

int CLinux_isForkTorn(void) { return atomic_load(&is_torn) && CLinux_forkGeneration() > 0; }

int CLinux_noticeFork(void) {
    if (atomic_load(&process) == getpid()) return 0;
    // No fork handler has waited for other threads.
    for (int i = 0; i < GATES; i++) is_closed[i] = false;
    forks = 0;
    in_child();
    return 1;
}
