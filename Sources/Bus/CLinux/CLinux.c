#define _GNU_SOURCE
#include "CLinux.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <unistd.h>

const char *CLinux_secureEnvironment(const char *name) { return secure_getenv(name); }

void CLinux_nameThisThread(const char *name) { prctl(PR_SET_NAME, name); }

// By the kernel's calls, which change one thread. The C library's setgroups changes all.
static int set(uid_t user, gid_t group, const gid_t *groups, size_t count) {
    if (syscall(SYS_setgroups, count, groups) != 0) return -errno;
    // The two have no other sign of success than to be asked again.
    syscall(SYS_setfsgid, group);
    syscall(SYS_setfsuid, user);
    if ((gid_t)syscall(SYS_setfsgid, -1) != group || (uid_t)syscall(SYS_setfsuid, -1) != user) return EPERM;
    return 0;
}

int CLinux_pipe(int ends[2]) { return pipe2(ends, O_CLOEXEC); }

int CLinux_actAs(uid_t user, const gid_t *groups, size_t count) {
    // Nobody's group, where none is known.
    return set(user, count > 0 ? groups[0] : (gid_t)65534, groups, count);
}

int CLinux_actAsMyself(const gid_t *groups, size_t count) { return set(geteuid(), getegid(), groups, count); }

int CLinux_closeFrom(posix_spawn_file_actions_t *actions, int first) {
    return posix_spawn_file_actions_addclosefrom_np(actions, first);
}

void CLinux_adoptOrphans(void) { prctl(PR_SET_CHILD_SUBREAPER, 1); }

void CLinux_keepMemoryPrivate(void) { prctl(PR_SET_DUMPABLE, 0); }
