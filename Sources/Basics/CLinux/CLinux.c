#define _GNU_SOURCE
#include "CLinux.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/openat2.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/timex.h>
#include <unistd.h>

const char *CLinux_secureEnvironment(const char *name) { return secure_getenv(name); }

int CLinux_isSecureExecution(void) { return getauxval(AT_SECURE) != 0; }

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

int CLinux_isBornAfter(int directory, const char *name, struct timespec time) {
    struct statx status;
    if (statx(directory, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_BTIME, &status) != 0) return -1;
    if (!(status.stx_mask & STATX_BTIME)) return 0;
    if (status.stx_btime.tv_sec != time.tv_sec) return status.stx_btime.tv_sec > time.tv_sec;
    return (long)status.stx_btime.tv_nsec > time.tv_nsec;
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

/* Arms the descriptor for the next jump. The timer itself never fires. If the clock has jumped since the last call,
   this sets the timer but returns an error. */
static int CLinux_awaitJump(int descriptor) {
    struct itimerspec never = {.it_value.tv_sec = (time_t)1 << 40};
    return timerfd_settime(descriptor, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &never, NULL);
}

int CLinux_openClockEvents(void) {
    int descriptor = timerfd_create(CLOCK_REALTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (descriptor < 0 || CLinux_awaitJump(descriptor) == 0 || errno == ECANCELED) return descriptor;
    int error = errno;
    close(descriptor);
    errno = error;
    return -1;
}

int CLinux_readClockEvents(int descriptor) {
    uint64_t count;
    int hasJumped = read(descriptor, &count, sizeof count) < 0 && errno == ECANCELED;
    if (CLinux_awaitJump(descriptor) < 0 && errno == ECANCELED) hasJumped = 1;
    return hasJumped;
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

/* Returns the event that a message reports; 0 for none. */
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
    /* At most 64 messages at once: the rest makes the socket readable again. */
    for (int count = 0; count < 64; count++) {
        union {
            struct nlmsghdr header;
            char bytes[16384];
        } buffer;
        struct sockaddr_nl sender = {0};
        socklen_t length = sizeof sender;
        ssize_t size = recvfrom(socket, &buffer, sizeof buffer, 0, (struct sockaddr *)&sender, &length);
        if (size < 0) return errno == ENOBUFS ? meaning | CLINUX_NEW_ADDRESS : meaning;
        /* Other processes may send to the socket, too. The kernel's ID is 0. */
        if (sender.nl_pid != 0) continue;
        unsigned left = (unsigned)size;
        for (struct nlmsghdr *next = &buffer.header; NLMSG_OK(next, left); next = NLMSG_NEXT(next, left)) {
            meaning |= CLinux_meaning(next);
        }
    }
    return meaning;
}

// Gets both ends of a connection as the peer's socket lists them: the peer's own end first.
static int endsOfPeer(int connection, struct sockaddr_in *own, struct sockaddr_in *other) {
    socklen_t length = sizeof *own;
    if (getpeername(connection, (struct sockaddr *)own, &length) != 0) return -1;
    length = sizeof *other;
    if (getsockname(connection, (struct sockaddr *)other, &length) != 0) return -1;
    if (own->sin_family == AF_INET && other->sin_family == AF_INET) return 0;
    errno = EAFNOSUPPORT;
    return -1;
}

// Asks the kernel for one socket by its ends. The response is queued when `send` returns.
static int ask(const struct sockaddr_in *own, const struct sockaddr_in *other, uid_t *user) {
    struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 body;
    } question = {
        .head = {.nlmsg_len = sizeof question, .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST},
        .body = {
            .sdiag_family = AF_INET,
            .sdiag_protocol = IPPROTO_TCP,
            .idiag_states = ~0u,
            .id = {
                .idiag_sport = own->sin_port,
                .idiag_dport = other->sin_port,
                .idiag_src = {own->sin_addr.s_addr},
                .idiag_dst = {other->sin_addr.s_addr},
                .idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE},
            },
        },
    };
    union {
        struct nlmsghdr head;
        char bytes[4096];
    } answer;
    int diagnostics = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    if (diagnostics < 0) return -1;
    ssize_t count = send(diagnostics, &question, sizeof question, 0);
    if (count >= 0) count = recv(diagnostics, &answer, sizeof answer, MSG_DONTWAIT);
    int reason = errno;
    close(diagnostics);
    errno = reason;
    if (count < 0) return -1;
    errno = EPROTO;
    if (!NLMSG_OK(&answer.head, (size_t)count)) return -1;
    if (answer.head.nlmsg_type == NLMSG_ERROR && answer.head.nlmsg_len >= NLMSG_LENGTH(sizeof(struct nlmsgerr))) {
        struct nlmsgerr *error = NLMSG_DATA(&answer.head);
        errno = -error->error;
        return -1;
    }
    if (answer.head.nlmsg_type != SOCK_DIAG_BY_FAMILY) return -1;
    if (answer.head.nlmsg_len < NLMSG_LENGTH(sizeof(struct inet_diag_msg))) return -1;
    struct inet_diag_msg *found = NLMSG_DATA(&answer.head);
    errno = ENOENT;
    // The kernel may return the listening socket instead, which has no other end. The inode is 0 if no process holds
    // the socket any more.
    if (found->id.idiag_dport != other->sin_port || found->idiag_inode == 0) return -1;
    *user = found->idiag_uid;
    return 0;
}

int CLinux_userOfPeer(int connection, uid_t *user) {
    struct sockaddr_in own, other;
    if (endsOfPeer(connection, &own, &other) != 0) return -1;
    if (ask(&own, &other, user) == 0) return 0;
    return errno == ENOENT ? -1 : CLinux_userOfPeerByList(connection, user);
}

int CLinux_userOfPeerByList(int connection, uid_t *user) {
    struct sockaddr_in own, other;
    if (endsOfPeer(connection, &own, &other) != 0) return -1;
    FILE *list = fopen("/proc/net/tcp", "re");
    if (!list) return -1;
    char line[512];
    errno = ENOENT;
    int result = -1;
    while (result != 0 && fgets(line, sizeof line, list)) {
        unsigned address[2], port[2], owner;
        unsigned long inode;
        if (sscanf(line, "%*d: %x:%x %x:%x %*x %*s %*s %*s %u %*d %lu", &address[0], &port[0], &address[1], &port[1], &owner, &inode) != 6) continue;
        if (address[0] != own.sin_addr.s_addr || port[0] != ntohs(own.sin_port) || address[1] != other.sin_addr.s_addr
            || port[1] != ntohs(other.sin_port) || inode == 0) continue;
        *user = owner;
        result = 0;
    }
    fclose(list);
    return result;
}
