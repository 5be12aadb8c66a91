// The 64 bits of state of a name, across tokens and processes.
#include "expect.h"

static uint64_t state_of(int token) {
    uint64_t state = 0xbad;
    EXPECT_OK(notify_get_state(token, &state));
    return state;
}

// The state of a name through a new registration.
static uint64_t seen_anew(const char *name) {
    int token = -1;
    EXPECT_OK(notify_register_check(name, &token));
    uint64_t state = state_of(token);
    EXPECT_OK(notify_cancel(token));
    return state;
}

static void in_one_process(void) {
    int first = watch("org.example.state"), second = watch("org.example.state");
    // Rules, a.11: the state is 0 at first, belongs to the name and not to the token, and the last writer wins.
    EXPECT_EQUAL(state_of(first), 0);
    EXPECT_OK(notify_set_state(first, 1));
    EXPECT_EQUAL(state_of(second), 1);
    EXPECT_OK(notify_set_state(second, UINT64_MAX));
    EXPECT_EQUAL(state_of(first), UINT64_MAX);
    // Setting a state posts nothing.
    EXPECT_EQUAL(checked(first), 0);
    // The state lives until the last registration ends.
    EXPECT_OK(notify_cancel(first));
    EXPECT_EQUAL(state_of(second), UINT64_MAX);
    EXPECT_OK(notify_cancel(second));
    EXPECT_EQUAL(seen_anew("org.example.state"), 0);
}

// A process that sets the state, and holds the name until it is killed.
static int hold_role(const char *name, const char *value) {
    int token = -1;
    EXPECT_OK(notify_register_check(name, &token));
    EXPECT_OK(notify_set_state(token, strtoull(value, NULL, 10)));
    EXPECT_OK(notify_post(name));
    say("");
    pause();
    return failures;
}

// A process that sets the state 1 higher, and ends.
static int increment_role(const char *name) {
    int token = -1;
    EXPECT_OK(notify_register_check(name, &token));
    EXPECT_OK(notify_set_state(token, state_of(token) + 1));
    return failures;
}

static void across_processes(void) {
    int output = -1;
    pid_t holder = start("hold", "org.example.held", "4711", &output);
    EXPECT(heard(output));
    EXPECT_EQUAL(seen_anew("org.example.held"), 4711);
    EXPECT_EQUAL(status_of(start("increment", "org.example.held", NULL, NULL)), 0);
    EXPECT_EQUAL(seen_anew("org.example.held"), 4712);
    // a.11: the state ends with the last registration, even if its process is killed.
    kill(holder, SIGKILL);
    status_of(holder);
    EVENTUALLY(seen_anew("org.example.held") == 0);
    close(output);

    // The usual protocol: set, then post. A receiver of the post reads the value that was set, or a later one.
    int fd = -1, token = -1;
    EXPECT_OK(notify_register_file_descriptor("org.example.protocol", &fd, 0, &token));
    holder = start("hold", "org.example.protocol", "12", &output);
    EXPECT_EQUAL(next_token(fd), token);
    EXPECT_EQUAL(state_of(token), 12);
    kill(holder, SIGKILL);
    status_of(holder);
    // The value stays, because this process still has a registration.
    EXPECT_EQUAL(status_of(start("increment", "org.example.protocol", NULL, NULL)), 0);
    EXPECT_EQUAL(state_of(token), 13);
    EXPECT_OK(notify_cancel(token));
    close(output);
}

int main(int argc, char **argv) {
    take_role(argc, argv);
    if (is_role(argc, argv, "hold")) return hold_role(argv[2], argv[3]);
    if (is_role(argc, argv, "increment")) return increment_role(argv[2]);
    in_one_process();
    across_processes();
    return finish();
}
