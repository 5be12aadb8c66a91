#ifndef CLINUX_H
#define CLINUX_H

// Linux calls that Swift's Glibc module lacks.

#include <spawn.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/types.h>
#include <sys/xattr.h>

/// secure_getenv: also returns NULL in a process with more rights than its user.
const char *CLinux_secureEnvironment(const char *name);

/// Whether the process has more rights than its user (AT_SECURE): 1 or 0.
int CLinux_isSecureExecution(void);

/// Names the calling thread. The kernel keeps 15 bytes.
void CLinux_nameThisThread(const char *name);

/// Opens a pipe whose ends child programs do not inherit. Returns 0, or -1 with errno set.
int CLinux_pipe(int ends[2]);

/// Closes the descriptors from `first` on in a program that is about to start. Returns 0, or an error number.
int CLinux_closeFrom(posix_spawn_file_actions_t *actions, int first);

/// Makes this process, instead of process 1, the parent of all its descendants whose parents end from now on.
void CLinux_adoptOrphans(void);

/// From here on no other process of this user can read this process's memory, trace it, or see it in a core dump.
void CLinux_keepMemoryPrivate(void);

/// Opens a directory by an absolute path without symbolic links (openat2). The descriptor serves only as the base for
/// names: the directory need not be readable, and is not opened for reading. Returns -1 with errno set; ELOOP for a
/// link.
int CLinux_openDirectoryWithoutLinks(const char *path);

/// Whether this name in the directory is a mount point; for an empty name, whether the directory itself is. Returns 1,
/// 0, or -1 with errno set.
int CLinux_isMountPoint(int directory, const char *name);

/// Whether the file with this name in the directory was created after a time of the wall clock. Returns 1; 0 also if
/// the file system does not record it; or -1 with errno set.
int CLinux_isBornAfter(int directory, const char *name, struct timespec time);

/// Opens the process with this ID (pidfd_open). Child programs do not inherit the descriptor. Returns -1 with errno
/// set.
int CLinux_openProcess(pid_t process);

/// Sends a signal to the process of such a descriptor (pidfd_send_signal). Returns 0, or -1 with errno set.
int CLinux_signalProcess(int process, int signal);

/// From here on no program that this process starts gains rights. Returns 0, or -1 with errno set.
int CLinux_takeNoNewRights(void);

/// Finds the user of the socket at the other end of a TCP connection over IPv4 on this machine, in the kernel's socket
/// table (sock_diag). Does not wait. Returns 0, or -1 with errno set; ENOENT if there is no such socket, or its process
/// has closed it.
int CLinux_userOfPeer(int connection, uid_t *user);

/// Does the same by the list in /proc/net/tcp, for kernels that do not respond. The kernel needs milliseconds to write
/// it.
int CLinux_userOfPeerByList(int connection, uid_t *user);

/// Whether a program keeps the wall clock synchronised (adjtimex): 1 or 0.
int CLinux_isClockSynchronised(void);

/// Opens a descriptor that becomes readable when the wall clock jumps, because it was set or the machine has slept
/// (timerfd_create). Child programs do not inherit it. Returns -1 with errno set.
int CLinux_openClockEvents(void);

/// Whether the clock has jumped since the last call: 1 or 0. Does not wait. Rearms the descriptor for the next jump.
int CLinux_readClockEvents(int descriptor);

/// Opens a socket on which the kernel reports addresses, links and routes (rtnetlink). Child programs do not inherit
/// it. Returns -1 with errno set.
int CLinux_openNetworkEvents(void);

/// An address or a link has changed, or the kernel's queue has overflowed.
#define CLINUX_NEW_ADDRESS 1
/// There is a new default route of IPv4. IPv6 routers announce theirs every few minutes, so for IPv6 only
/// CLINUX_NEW_ADDRESS reports a network.
#define CLINUX_NEW_ROUTE 2

/// Reads the waiting messages of such a socket, and returns which of these two events they report; 0 for neither. Does
/// not wait.
int CLinux_readNetworkEvents(int socket);

// MARK: fork

/// Calls of libdbus that may take one of its global locks.
#define CLINUX_CALL 0
/// Opening a connection, in which the kernel may block the thread.
#define CLINUX_CONNECT 1

/// Makes forks of other threads wait until CLinux_allowFork: 1 second at most, 50 milliseconds for CLINUX_CONNECT.
/// Calls may be nested.
static inline void CLinux_holdOffFork(int gate);
static inline void CLinux_allowFork(int gate);

/// Notes that this process uses a bus, so that later forks count. Returns CLinux_forkGeneration.
static inline unsigned long CLinux_useBus(void);

/// The number of forks between this process and its first ancestor that used a bus; 0 in that ancestor.
static inline unsigned long CLinux_forkGeneration(void);

/// Whether a thread was inside libdbus when this process or an ancestor was forked. The locks may then be held forever.
int CLinux_isForkTorn(void);

/// Does the work of the fork handlers in a child that was made without fork(3). Returns whether this process is such a
/// child.
int CLinux_noticeFork(void);

// State of the four inline functions above. They are inline, because each post calls them several times.
extern _Thread_local unsigned CLinux_depths[2] __attribute__((tls_model("initial-exec")));
extern unsigned long CLinux_generation;
extern int CLinux_isUsed;
void CLinux_enter(int gate);
void CLinux_leave(int gate);

static inline void CLinux_holdOffFork(int gate) {
    if (CLinux_depths[gate]++ == 0) CLinux_enter(gate);
}

static inline void CLinux_allowFork(int gate) {
    // Unlocked first: a fork in a signal handler in between has nothing to wait for.
    if (CLinux_depths[gate] == 1) CLinux_leave(gate);
    CLinux_depths[gate]--;
}

static inline unsigned long CLinux_forkGeneration(void) {
    return __atomic_load_n(&CLinux_generation, __ATOMIC_RELAXED);
}

static inline unsigned long CLinux_useBus(void) {
    if (!__atomic_load_n(&CLinux_isUsed, __ATOMIC_RELAXED)) __atomic_store_n(&CLinux_isUsed, 1, __ATOMIC_SEQ_CST);
    return CLinux_forkGeneration();
}

#endif
