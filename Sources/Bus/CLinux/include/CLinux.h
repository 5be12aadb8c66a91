#ifndef CLINUX_H
#define CLINUX_H

// Calls of Linux that Swift's Glibc module lacks.

#include <spawn.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/types.h>
#include <sys/xattr.h>

/// secure_getenv: NULL also in a process with more rights than its user.
const char *CLinux_secureEnvironment(const char *name);

/// Whether the process has more rights than its user (AT_SECURE): 1 or 0.
int CLinux_isSecureExecution(void);

/// Gives the calling thread a name, of which the kernel keeps 15 bytes.
void CLinux_nameThisThread(const char *name);

/// A pipe whose ends no program inherits; 0, or -1 with errno set.
int CLinux_pipe(int ends[2]);

/// Has a program that is about to be started inherit no descriptor from `first` on. Returns 0, or an error number.
int CLinux_closeFrom(posix_spawn_file_actions_t *actions, int first);

/// From here on this process is the parent of all its descendants whose parents have ended; otherwise that is process 1.
void CLinux_adoptOrphans(void);

/// From here on no other process of this user reads this one's memory, traces it, or sees it in a core dump.
void CLinux_keepMemoryPrivate(void);

/// Opens a directory by an absolute path without any symbolic link in it (openat2), to name what is in it: it need not be readable, and is not
/// opened for reading. -1 with errno set, ELOOP for a link.
int CLinux_openDirectoryWithoutLinks(const char *path);

/// Whether something is mounted at this name in the directory, or at the directory itself where the name is empty: 1, 0, or -1 with errno set.
int CLinux_isMountPoint(int directory, const char *name);

/// Whether what has this name in the directory was made after a time of the wall clock: 1, 0, also where the file system does not tell, or -1 with errno set.
int CLinux_isBornAfter(int directory, const char *name, struct timespec time);

/// A descriptor of the process with this number (pidfd_open), which no program inherits; -1 with errno set.
int CLinux_openProcess(pid_t process);

/// Sends a signal to the process of such a descriptor (pidfd_send_signal). Returns 0, or -1 with errno set.
int CLinux_signalProcess(int process, int signal);

/// From here on no program that this process starts has more rights than it. Returns 0, or -1 with errno set.
int CLinux_takeNoNewRights(void);

/// The user whose socket is at the other end of a TCP connection over IPv4 on this machine, by the kernel's table of sockets (sock_diag): 0, or -1
/// with errno set. ENOENT: there is no such socket, or its process has closed it. Does not wait.
int CLinux_userOfPeer(int connection, uid_t *user);

/// The same by the list in /proc/net/tcp, for kernels that do not answer the question. The list takes the kernel milliseconds to write.
int CLinux_userOfPeerByList(int connection, uid_t *user);

/// Whether something keeps the wall clock right (adjtimex): 1 or 0.
int CLinux_isClockSynchronised(void);

/// A descriptor that becomes readable when the wall clock jumps, because somebody sets it or the machine has slept (timerfd_create), and which no
/// program inherits; -1 with errno set.
int CLinux_openClockEvents(void);

/// Whether the clock has jumped since the last call: 1 or 0. From here on the descriptor tells of the next jump. It does not wait.
int CLinux_readClockEvents(int descriptor);

/// A socket on which the kernel tells of addresses, links and routes (rtnetlink), and which no program inherits; -1 with errno set.
int CLinux_openNetworkEvents(void);

/// An address or a link has changed, or the kernel had more to tell than there was room for.
#define CLINUX_NEW_ADDRESS 1
/// There is a new default route of IPv4. Routers of IPv6 announce theirs every few minutes, so for IPv6 only CLINUX_NEW_ADDRESS tells of a network.
#define CLINUX_NEW_ROUTE 2

/// Reads the messages that wait at such a socket, and returns which of these two events they tell of; 0 for neither. It does not wait.
int CLinux_readNetworkEvents(int socket);

// MARK: fork

/// The calls of libdbus that may take one of its global locks.
#define CLINUX_CALL 0
/// To open a connection, for which the kernel may let a thread wait.
#define CLINUX_CONNECT 1

/// Has the forks of other threads wait until CLinux_allowFork: 1 second at most, 50 milliseconds for CLINUX_CONNECT.
/// Calls may be nested.
static inline void CLinux_holdOffFork(int gate);
static inline void CLinux_allowFork(int gate);

/// Notes that this process uses a bus: what forks from here on are its children. Returns CLinux_forkGeneration.
static inline unsigned long CLinux_useBus(void);

/// How many forks there are between this process and the one that has used a bus first; 0 in that one.
static inline unsigned long CLinux_forkGeneration(void);

/// Whether a thread was inside libdbus when this process, or one that it comes from, was forked: its locks may be held
/// for ever.
int CLinux_isForkTorn(void);

/// Does what happens in a forked child by itself, for a child that was made without fork(3). Returns whether this
/// process is one.
int CLinux_noticeFork(void);

// Of the four functions above, which each post calls several times.
extern _Thread_local unsigned CLinux_depths[2] __attribute__((tls_model("initial-exec")));
extern unsigned long CLinux_generation;
extern int CLinux_isUsed;
void CLinux_enter(int gate);
void CLinux_leave(int gate);

static inline void CLinux_holdOffFork(int gate) {
    if (CLinux_depths[gate]++ == 0) CLinux_enter(gate);
}

static inline void CLinux_allowFork(int gate) {
    // Unlocked first: a fork in a signal handler in between waits for nothing.
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
