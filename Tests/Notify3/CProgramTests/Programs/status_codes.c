// Every documented error, and NULL for every pointer.
#include "expect.h"
#include <notify_private.h>

static void names(void) {
    int token = 7, fd;
    mach_port_t port;
    // Rules, a.1: INVALID_NAME is a NULL name.
    EXPECT_EQUAL(notify_post(NULL), NOTIFY_STATUS_INVALID_NAME);
    EXPECT_EQUAL(notify_simple_post(NULL), NOTIFY_STATUS_INVALID_NAME);
    EXPECT_EQUAL(notify_register_check(NULL, &token), NOTIFY_STATUS_INVALID_NAME);
    // a.2: only register_check clears the token.
    EXPECT_EQUAL(token, NOTIFY_TOKEN_INVALID);
    EXPECT_EQUAL(notify_register_plain(NULL, &token), NOTIFY_STATUS_INVALID_NAME);
    EXPECT_EQUAL(notify_register_signal(NULL, SIGUSR1, &token), NOTIFY_STATUS_INVALID_NAME);
    EXPECT_EQUAL(notify_register_file_descriptor(NULL, &fd, 0, &token), NOTIFY_STATUS_INVALID_NAME);
    EXPECT_EQUAL(notify_register_mach_port(NULL, &port, 0, &token), NOTIFY_STATUS_INVALID_NAME);
    // The header: the name is not UTF-8.
    EXPECT_EQUAL(notify_post("\xff\xfe"), NOTIFY_STATUS_INVALID_NAME);
    EXPECT_EQUAL(notify_register_check("\xc3", &token), NOTIFY_STATUS_INVALID_NAME);
}

static void pointers(void) {
    int fd = -1, token = -1, check;
    mach_port_t port = 0;
    uint32_t value;
    uint64_t state;
    // a.1: NULL_INPUT; a.6: nothing crashes on a NULL token.
    EXPECT_EQUAL(notify_register_check("org.example.null", NULL), NOTIFY_STATUS_NULL_INPUT);
    EXPECT_EQUAL(notify_register_plain("org.example.null", NULL), NOTIFY_STATUS_NULL_INPUT);
    EXPECT_EQUAL(notify_register_signal("org.example.null", SIGUSR1, NULL), NOTIFY_STATUS_NULL_INPUT);
    EXPECT_EQUAL(notify_register_file_descriptor("org.example.null", &fd, 0, NULL), NOTIFY_STATUS_NULL_INPUT);
    EXPECT_EQUAL(notify_register_mach_port("org.example.null", &port, 0, NULL), NOTIFY_STATUS_NULL_INPUT);
    // a.1: INVALID_FILE and INVALID_PORT are for a NULL pointer to the descriptor.
    EXPECT_EQUAL(notify_register_file_descriptor("org.example.null", NULL, 0, &token), NOTIFY_STATUS_INVALID_FILE);
    EXPECT_EQUAL(notify_register_mach_port("org.example.null", NULL, 0, &token), NOTIFY_STATUS_INVALID_PORT);
    EXPECT_EQUAL(token, -1);

    token = watch("org.example.null");
    EXPECT_EQUAL(notify_check(token, NULL), NOTIFY_STATUS_NULL_INPUT);
    EXPECT_EQUAL(notify_peek(token, NULL), NOTIFY_STATUS_NULL_INPUT);
    EXPECT_EQUAL(notify_get_state(token, NULL), NOTIFY_STATUS_NULL_INPUT);
    EXPECT_EQUAL(notify_dump_status(NULL), NOTIFY_STATUS_NULL_INPUT);
    // a.13
    EXPECT_EQUAL(notify_monitor_file(token, NULL, 0), NOTIFY_STATUS_INVALID_REQUEST);
    EXPECT_OK(notify_cancel(token));

    // a.3: this implementation has no events, and every pointer may be NULL.
    int event = 5, length = 5;
    char text[1];
    EXPECT_OK(notify_get_event(token, &event, text, &length));
    EXPECT_EQUAL(event, 0);
    EXPECT_EQUAL(length, 0);
    notify_get_event(token, NULL, NULL, NULL);

    // a.1: INVALID_TOKEN for tokens that are unknown, negative or cancelled.
    int strangers[] = {token, -1, 1000000, -2147483647 - 1, 2147483647};
    for (unsigned i = 0; i < sizeof strangers / sizeof *strangers; i++) {
        int stranger = strangers[i];
        EXPECT_EQUAL(notify_check(stranger, &check), NOTIFY_STATUS_INVALID_TOKEN);
        EXPECT_EQUAL(notify_cancel(stranger), NOTIFY_STATUS_INVALID_TOKEN);
        EXPECT_EQUAL(notify_suspend(stranger), NOTIFY_STATUS_INVALID_TOKEN);
        EXPECT_EQUAL(notify_resume(stranger), NOTIFY_STATUS_INVALID_TOKEN);
        EXPECT_EQUAL(notify_set_state(stranger, 1), NOTIFY_STATUS_INVALID_TOKEN);
        EXPECT_EQUAL(notify_get_state(stranger, &state), NOTIFY_STATUS_INVALID_TOKEN);
        EXPECT_EQUAL(notify_peek(stranger, &value), NOTIFY_STATUS_INVALID_TOKEN);
        EXPECT_EQUAL(notify_monitor_file(stranger, (char *)"/etc", 0), NOTIFY_STATUS_INVALID_TOKEN);
        EXPECT(!notify_is_valid_token(stranger));
    }
}

static void descriptors(void) {
    int token = -1, fd = 0;
    // a.1: NOTIFY_REUSE with a descriptor that no earlier call returned.
    EXPECT_EQUAL(notify_register_file_descriptor("org.example.reuse", &fd, NOTIFY_REUSE, &token), NOTIFY_STATUS_INVALID_FILE);
    fd = -1;
    EXPECT_EQUAL(notify_register_file_descriptor("org.example.reuse", &fd, NOTIFY_REUSE, &token), NOTIFY_STATUS_INVALID_FILE);
    mach_port_t port = 0;
    EXPECT_EQUAL(notify_register_mach_port("org.example.reuse", &port, NOTIFY_REUSE, &token), NOTIFY_STATUS_INVALID_PORT);
    // a.1: notify_peek refuses a token of notify_register_plain.
    uint32_t value;
    EXPECT_OK(notify_register_plain("org.example.plain", &token));
    EXPECT_EQUAL(notify_peek(token, &value), NOTIFY_STATUS_INVALID_REQUEST);
    EXPECT_OK(notify_cancel(token));
}

int main(void) {
    int first = -1;
    EXPECT_OK(notify_register_check("org.example.first", &first));
    // Rules, a.6: tokens are not negative. The first is positive, which Apple's tests require.
    EXPECT(first > 0);
    names();
    pointers();
    descriptors();
    // a.9: a post without listeners is not remembered.
    EXPECT_OK(notify_post("org.example.nobody"));
    return finish();
}
