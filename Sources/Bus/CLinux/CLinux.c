#define _GNU_SOURCE
#include "CLinux.h"
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <unistd.h>

const char *CLinux_secureEnvironment(const char *name) { return secure_getenv(name); }

void CLinux_nameThisThread(const char *name) { prctl(PR_SET_NAME, name); }

int CLinux_pipe(int ends[2]) { return pipe2(ends, O_CLOEXEC); }

int CLinux_closeFrom(posix_spawn_file_actions_t *actions, int first) {
    return posix_spawn_file_actions_addclosefrom_np(actions, first);
}

void CLinux_adoptOrphans(void) { prctl(PR_SET_CHILD_SUBREAPER, 1); }

void CLinux_keepMemoryPrivate(void) { prctl(PR_SET_DUMPABLE, 0); }

int CLinux_openDirectoryWithoutLinks(const char *path) {
    struct open_how how = {
        .flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
        .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    return (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
}

int CLinux_isMountPoint(int directory, const char *name) {
    struct statx status;
    int flags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | (*name ? 0 : AT_EMPTY_PATH);
    if (statx(directory, name, flags, 0, &status) != 0) return -1;
    return (status.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

int CLinux_takeNoNewRights(void) { return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); }

int CLinux_openProcess(int process) { return (int)syscall(SYS_pidfd_open, process, 0); }

int CLinux_signalProcess(int descriptor, int signal) {
    return (int)syscall(SYS_pidfd_send_signal, descriptor, signal, 0, 0);
}

int CLinux_isClockSynchronised(void) {
    struct timex state = {0};
    int result = adjtimex(&state);
    return result >= 0 && result != TIME_ERROR;
}
