#define _GNU_SOURCE
#include "CLinux.h"
#include <fcntl.h>
#include <errno.h>
#include <linux/openat2.h>
#include <linux/rtnetlink.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
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

int CLinux_openNetworkEvents(void) {
    int descriptor = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
    if (descriptor < 0) return -1;
    struct sockaddr_nl address = {
        .nl_family = AF_NETLINK,
        .nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR | RTMGRP_IPV4_ROUTE,
    };
    if (bind(descriptor, (struct sockaddr *)&address, sizeof address) == 0) return descriptor;
    int error = errno;
    close(descriptor);
    errno = error;
    return -1;
}

/* What one message is about. */
static int CLinux_meaning(const struct nlmsghdr *message) {
    switch (message->nlmsg_type) {
    case RTM_NEWADDR:
    case RTM_DELADDR:
    case RTM_NEWLINK:
    case RTM_DELLINK:
        return CLINUX_NEW_ADDRESS;
    case RTM_NEWROUTE: {
        if (message->nlmsg_len < NLMSG_LENGTH(sizeof(struct rtmsg))) return 0;
        const struct rtmsg *route = NLMSG_DATA(message);
        return route->rtm_dst_len == 0 && route->rtm_type == RTN_UNICAST ? CLINUX_NEW_ROUTE : 0;
    }
    default:
        return 0;
    }
}

int CLinux_readNetworkEvents(int socket) {
    int meaning = 0;
    /* As many as wait, within reason: what is left makes the socket readable again. */
    for (int count = 0; count < 64; count++) {
        union {
            struct nlmsghdr header;
            char bytes[16384];
        } buffer;
        struct sockaddr_nl sender = {0};
        socklen_t length = sizeof sender;
        ssize_t size = recvfrom(socket, &buffer, sizeof buffer, 0, (struct sockaddr *)&sender, &length);
        if (size < 0) return errno == ENOBUFS ? meaning | CLINUX_NEW_ADDRESS : meaning;
        /* Other processes may send to the socket, too. */
        if (sender.nl_pid != 0) continue;
        unsigned left = (unsigned)size;
        for (struct nlmsghdr *next = &buffer.header; NLMSG_OK(next, left); next = NLMSG_NEXT(next, left)) {
            meaning |= CLinux_meaning(next);
        }
    }
    return meaning;
}
