// Names: long, empty, in other alphabets, of a process, of a user.
#include "expect.h"

// Posts both names. Each token receives only the posts of its own name.
static void expect_apart(const char *one, const char *other) {
    int first = watch(one), second = watch(other), fd = -1, token = -1;
    EXPECT_OK(notify_post(one));
    fence();
    EXPECT_EQUAL(checked(first), 1);
    EXPECT_EQUAL(checked(second), 0);
    post_elsewhere(other);
    EVENTUALLY(checked(second) == 1);
    EXPECT_EQUAL(checked(first), 0);
    // A state also belongs to the whole name (a.4).
    uint64_t state = 0;
    EXPECT_OK(notify_set_state(first, 1));
    EXPECT_OK(notify_set_state(second, 2));
    EXPECT_OK(notify_get_state(first, &state));
    EXPECT_EQUAL(state, 1);
    EXPECT_OK(notify_register_file_descriptor(other, &fd, 0, &token));
    EXPECT_OK(notify_post(one));
    EXPECT_OK(notify_post(other));
    EXPECT_EQUAL(next_token(fd), token);
    settle();
    EXPECT(!is_readable(fd, 0));
    EXPECT_OK(notify_cancel(token));
    EXPECT_OK(notify_cancel(first));
    EXPECT_OK(notify_cancel(second));
}

static void length(int bytes) {
    // Rules, a.4: Darwin's limit is 511 bytes. Here names of any length that differ only in the last byte are different
    // names.
    char *one = (char *)malloc((size_t)bytes + 1), *other = (char *)malloc((size_t)bytes + 1);
    memset(one, 'n', (size_t)bytes);
    memcpy(one, "org.", 4);
    one[bytes] = 0;
    memcpy(other, one, (size_t)bytes + 1);
    other[bytes - 1] = 'N';
    expect_apart(one, other);
    free(one);
    free(other);
}

static void self_names(void) {
    // a.4, a.9: a private name stays in the process, and loses nothing, however fast it is posted.
    int fd = -1, token = -1, check = watch("self.burst");
    EXPECT_OK(notify_register_file_descriptor("self.burst", &fd, 0, &token));
    for (int i = 0; i < 100; i++) EXPECT_OK(notify_post("self.burst"));
    for (int i = 0; i < 100; i++) EXPECT_EQUAL(next_token(fd), token);
    EXPECT(!is_readable(fd, 0));
    EXPECT_EQUAL(checked(check), 1);
    // Another process has its own private names.
    post_elsewhere("self.burst");
    settle();
    EXPECT(!is_readable(fd, 0));
    EXPECT_EQUAL(checked(check), 0);
    // A private state works without notifyd, and ends with the last registration.
    uint64_t state = 5;
    EXPECT_OK(notify_get_state(token, &state));
    EXPECT_EQUAL(state, 0);
    EXPECT_OK(notify_set_state(token, 77));
    EXPECT_OK(notify_get_state(check, &state));
    EXPECT_EQUAL(state, 77);
    EXPECT_OK(notify_cancel(token));
    EXPECT_OK(notify_cancel(check));
    check = watch("self.burst");
    EXPECT_OK(notify_get_state(check, &state));
    EXPECT_EQUAL(state, 0);
    EXPECT_OK(notify_cancel(check));
}

static void expect_all(const char *name, uint32_t status) {
    int token = -1, fd = -1;
    EXPECT_EQUAL(notify_post(name), status);
    EXPECT_EQUAL(notify_register_check(name, &token), status);
    if (status == NOTIFY_STATUS_OK) EXPECT_OK(notify_cancel(token));
    // Unlike on Darwin (a.8), every function returns the refusal.
    EXPECT_EQUAL(notify_register_file_descriptor(name, &fd, 0, &token), status);
    if (status == NOTIFY_STATUS_OK) EXPECT_OK(notify_cancel(token));
    EXPECT_EQUAL(notify_register_signal(name, SIGCHLD, &token), status);
    if (status == NOTIFY_STATUS_OK) EXPECT_OK(notify_cancel(token));
}

static void user_names(uid_t user) {
    // a.4: the owner and root may use a user's name, other users may not. `user.uid.5010` does not belong to user 501.
    // Names after `user.uid.` without the number of a user belong to root.
    char own[64], below[64], longer[64];
    snprintf(own, sizeof own, "user.uid.%u", (unsigned)user);
    snprintf(below, sizeof below, "user.uid.%u.settings", (unsigned)user);
    snprintf(longer, sizeof longer, "user.uid.%u0.settings", (unsigned)user + 1);
    expect_all(own, NOTIFY_STATUS_OK);
    expect_all(below, NOTIFY_STATUS_OK);
    uint32_t others = user == 0 ? NOTIFY_STATUS_OK : NOTIFY_STATUS_NOT_AUTHORIZED;
    expect_all(longer, others);
    expect_all("user.uid.foo", others);
    expect_all("user.uid.", others);
    expect_all("user.uid", NOTIFY_STATUS_OK);
}

int main(int argc, char **argv) {
    take_role(argc, argv);
    if (is_role(argc, argv, "nobody")) {
        // A bus accepts only root's connection, so it is made before the change of user.
        fence();
        EXPECT_EQUAL(seteuid(65534), 0);
        user_names(65534);
        expect_all("user.uid.0", NOTIFY_STATUS_NOT_AUTHORIZED);
        return finish();
    }
    length(511);
    length(512);
    length(2000);
    expect_apart("", "x");
    expect_apart("org.example.größe", "org.example.grösse");
    expect_apart("with blanks, 'quotes' and \\", "with blanks, 'quotes' and \\\\");
    self_names();
    user_names(geteuid());
    if (geteuid() == 0) EXPECT_EQUAL(status_of(start("nobody", NULL, NULL, NULL)), 0);
    return finish();
}
