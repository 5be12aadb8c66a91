// Descriptors, and ports, which are descriptors on Linux.
#include "expect.h"
#include <fcntl.h>
#include <sys/select.h>

static void tokens_arrive(void) {
    int fd = -1, token = -1;
    EXPECT_OK(notify_register_file_descriptor("org.example.fd", &fd, 0, &token));
    EXPECT(!is_readable(fd, 0));
    EXPECT_OK(notify_post("org.example.fd"));
    // Rules, a.2: four bytes in network order, ready for select.
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    struct timeval patience = {PATIENCE_MS / 1000, 0};
    EXPECT_EQUAL(select(fd + 1, &set, NULL, NULL, &patience), 1);
    unsigned char bytes[8];
    EXPECT_EQUAL(read(fd, bytes, sizeof bytes), 4);
    EXPECT_EQUAL((long long)bytes[0] << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3], token);
    // A post of another process arrives.
    post_elsewhere("org.example.fd");
    EXPECT_EQUAL(next_token(fd), token);
    // a.12: inherited across exec.
    EXPECT_EQUAL(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_OK(notify_cancel(token));
}

static void several_tokens_share_one(void) {
    int fd = -1, same, first = -1, second = -1, third = -1, other = -1, other_fd = -1;
    EXPECT_OK(notify_register_file_descriptor("org.example.share.1", &fd, 0, &first));
    same = fd;
    // a.2: NOTIFY_REUSE.
    EXPECT_OK(notify_register_file_descriptor("org.example.share.2", &same, NOTIFY_REUSE, &second));
    EXPECT_OK(notify_register_file_descriptor("org.example.share.1", &same, NOTIFY_REUSE, &third));
    EXPECT_EQUAL(same, fd);
    EXPECT_OK(notify_register_file_descriptor("org.example.share.1", &other_fd, 0, &other));
    EXPECT(other_fd != fd);
    EXPECT_OK(notify_post("org.example.share.2"));
    EXPECT_EQUAL(next_token(fd), second);
    EXPECT_OK(notify_post("org.example.share.1"));
    int one = next_token(fd), two = next_token(fd);
    EXPECT((one == first && two == third) || (one == third && two == first));
    EXPECT_EQUAL(next_token(other_fd), other);

    // a.6: the descriptor is closed with the last of its tokens, and not before.
    EXPECT_OK(notify_cancel(first));
    EXPECT_OK(notify_cancel(third));
    EXPECT_OK(notify_post("org.example.share.1"));
    EXPECT_OK(notify_post("org.example.share.2"));
    EXPECT_EQUAL(next_token(fd), second);
    ino_t file = file_of(fd);
    EXPECT(file != 0);
    EXPECT_OK(notify_cancel(second));
    EXPECT(file_of(fd) != file);
    // A closed descriptor cannot be reused.
    EXPECT_EQUAL(notify_register_file_descriptor("org.example.share.1", &fd, NOTIFY_REUSE, &first), NOTIFY_STATUS_INVALID_FILE);
    EXPECT_OK(notify_cancel(other));
}

static void a_slow_reader_loses_repetitions_only(void) {
    // a.9, unlike on Darwin: a full descriptor is never closed, and each token is written once more after the last
    // post. Private names cost no time on the bus.
    enum { POSTS = 40000 };
    int fd = -1, first = -1, second = -1;
    EXPECT_OK(notify_register_file_descriptor("self.slow.1", &fd, 0, &first));
    EXPECT_OK(notify_register_file_descriptor("self.slow.2", &fd, NOTIFY_REUSE, &second));
    for (int i = 0; i < POSTS; i++) EXPECT_OK(notify_post(i % 2 ? "self.slow.1" : "self.slow.2"));
    settle();
    int firsts = 0, seconds = 0;
    while (is_readable(fd, 0)) {
        int token = next_token(fd);
        EXPECT(token == first || token == second);
        firsts += token == first;
        seconds += token == second;
    }
    EXPECT(firsts >= 1 && firsts <= POSTS);
    EXPECT(seconds >= 1 && seconds <= POSTS);
    // The descriptor works as before.
    EXPECT_OK(notify_post("self.slow.1"));
    int token;
    do { token = next_token(fd); } while (token == second);
    EXPECT_EQUAL(token, first);
    EXPECT_OK(notify_cancel(first));
    EXPECT_OK(notify_cancel(second));
}

static void ports(void) {
    mach_port_t port = 0, same;
    int first = -1, second = -1;
    EXPECT_OK(notify_register_mach_port("org.example.port.1", &port, 0, &first));
    same = port;
    EXPECT_OK(notify_register_mach_port("org.example.port.2", &same, NOTIFY_REUSE, &second));
    EXPECT_EQUAL(same, port);
    EXPECT_OK(notify_post("org.example.port.2"));
    EXPECT_EQUAL(next_token((int)port), second);
    EXPECT_OK(notify_post("org.example.port.1"));
    EXPECT_EQUAL(next_token((int)port), first);
    ino_t file = file_of((int)port);
    EXPECT_OK(notify_cancel(first));
    EXPECT_OK(notify_cancel(second));
    EXPECT(file_of((int)port) != file);
}

// A caller may have closed a descriptor, and the next pipe may get its number. The number then refers to the new pipe.
static void numbers_come_again(void) {
    enum { ATTEMPTS = 200 };
    int lost_fd = -1, lost = -1, fd = -1, first = -1, second = -1;
    // The next registration needs three numbers, and the closed one is the last of them. Another thread may take one of
    // the three, so there are several attempts.
    for (int i = 0; i < ATTEMPTS; i++) {
        int low[2] = {open("/dev/null", O_RDONLY), open("/dev/null", O_RDONLY)};
        EXPECT_OK(notify_register_file_descriptor("org.example.again", &lost_fd, 0, &lost));
        for (int j = 0; j < 2; j++) close(low[j]);
        close(lost_fd);
        EXPECT_OK(notify_register_file_descriptor("org.example.again", &fd, 0, &first));
        if (fd == lost_fd) break;
        EXPECT_OK(notify_cancel(lost));
        EXPECT_OK(notify_cancel(first));
    }
    EXPECT_EQUAL(fd, lost_fd);
    EXPECT_OK(notify_register_file_descriptor("org.example.again", &fd, NOTIFY_REUSE, &second));
    EXPECT_OK(notify_cancel(lost));
    EXPECT_OK(notify_cancel(first));
    EXPECT_OK(notify_post("org.example.again"));
    EXPECT_EQUAL(next_token(fd), second);
    ino_t file = file_of(fd);
    EXPECT_OK(notify_cancel(second));
    EXPECT(file_of(fd) != file);
}

// A daemon closes all descriptors from 3 on, and opens files with the same numbers. The library writes to none of these
// files, and closes none.
static void the_program_closes_all(void) {
    enum { COUNT = 16 };
    int fd = -1, local = -1, global = -1;
    EXPECT_OK(notify_register_file_descriptor("self.org.example.closed", &fd, 0, &local));
    EXPECT_OK(notify_register_check("org.example.closed", &global));
    for (int number = 1023; number > 2; number--) close(number);
    FILE *files[COUNT];
    for (int i = 0; i < COUNT; i++) files[i] = tmpfile();
    EXPECT_OK(notify_post("self.org.example.closed"));
    // The library reconnects to the bus by itself.
    for (int i = 0; i < 10000 && notify_post("org.example.closed") != NOTIFY_STATUS_OK; i++) usleep(1000);
    EXPECT_OK(notify_post("org.example.closed"));
    EXPECT_OK(notify_cancel(local));
    EXPECT_OK(notify_cancel(global));
    for (int i = 0; i < COUNT; i++) {
        struct stat status;
        EXPECT(files[i] && fstat(fileno(files[i]), &status) == 0 && S_ISREG(status.st_mode) && status.st_size == 0);
    }
}

int main(int argc, char **argv) {
    take_role(argc, argv);
    tokens_arrive();
    several_tokens_share_one();
    a_slow_reader_loses_repetitions_only();
    ports();
    numbers_come_again();
    the_program_closes_all();
    return finish();
}
