#ifndef CLINUX_H
#define CLINUX_H

// Calls of Linux that Swift's Glibc module lacks.

#include <spawn.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <sys/types.h>

/// secure_getenv: NULL also in a process with more rights than its user.
const char *CLinux_secureEnvironment(const char *name);

/// Gives the calling thread a name, of which the kernel keeps 15 bytes.
void CLinux_nameThisThread(const char *name);

/// A pipe whose ends no program inherits; 0, or -1 with errno set.
int CLinux_pipe(int ends[2]);

/// From here on the calling thread, and no other, opens files as this user and these groups, the first of them in the place of the
/// process's own. Returns 0, or an error number; CLinux_actAsMyself is due in either case. A negative error number says that the
/// process may not do this and that nothing has changed.
int CLinux_actAs(uid_t user, const gid_t *groups, size_t count);

/// Undoes it; `groups` are the process's own. Returns 0, or another number where it could not.
int CLinux_actAsMyself(const gid_t *groups, size_t count);

/// Has a program that is about to be started inherit no descriptor from `first` on. Returns 0, or an error number.
int CLinux_closeFrom(posix_spawn_file_actions_t *actions, int first);

/// From here on this process is the parent of all its descendants whose parents have ended; otherwise that is process 1.
void CLinux_adoptOrphans(void);

/// From here on no other process of this user reads this one's memory, traces it, or sees it in a core dump.
void CLinux_keepMemoryPrivate(void);

#endif
