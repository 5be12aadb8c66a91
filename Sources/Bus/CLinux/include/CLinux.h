#ifndef CLINUX_H
#define CLINUX_H

// Calls of Linux that Swift's Glibc module lacks.

#include <spawn.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/types.h>

/// secure_getenv: NULL also in a process with more rights than its user.
const char *CLinux_secureEnvironment(const char *name);

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

#endif
