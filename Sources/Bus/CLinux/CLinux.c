#define _GNU_SOURCE
#include "CLinux.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

const char *CLinux_secureEnvironment(const char *name) { return secure_getenv(name); }

void CLinux_nameThisThread(const char *name) { prctl(PR_SET_NAME, name); }

int CLinux_pipe(int ends[2]) { return pipe2(ends, O_CLOEXEC); }

int CLinux_closeFrom(posix_spawn_file_actions_t *actions, int first) {
    return posix_spawn_file_actions_addclosefrom_np(actions, first);
}

void CLinux_adoptOrphans(void) { prctl(PR_SET_CHILD_SUBREAPER, 1); }

void CLinux_keepMemoryPrivate(void) { prctl(PR_SET_DUMPABLE, 0); }
