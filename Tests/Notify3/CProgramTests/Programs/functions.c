// notify_register_dispatch_f: handlers that are functions, on the library's own queue (Rules, a.7).
#include "expect.h"
#include <pthread.h>
#include <stdatomic.h>

struct calls {
    atomic_int count;
    atomic_int released;
    atomic_int last_token;
    // Whether the handler cancels its token.
    int cancels;
    // While it is 1, the handler does not return.
    atomic_int waits;
    atomic_int is_running;
    int tokens[1000];
};

static pthread_t main_thread;

static void note(void *context, int token) {
    struct calls *calls = context;
    EXPECT(!pthread_equal(pthread_self(), main_thread));
    EXPECT_EQUAL(calls->released, 0);
    calls->is_running = 1;
    while (calls->waits) rest();
    calls->last_token = token;
    calls->tokens[calls->count % 1000] = token;
    if (calls->cancels) EXPECT_OK(notify_cancel(token));
    calls->count++;
    calls->is_running = 0;
}

static void release(void *context) {
    struct calls *calls = context;
    EXPECT_EQUAL(calls->is_running, 0);
    calls->released++;
}

static void calls_are_in_the_order_of_the_posts(void) {
    static struct calls calls;
    int first = -1, second = -1;
    EXPECT_OK(notify_register_dispatch_f("org.example.f.first", &first, NULL, &calls, note, NULL));
    EXPECT_OK(notify_register_dispatch_f("org.example.f.second", &second, NULL, &calls, note, release));
    for (int round = 0; round < 6; round++) EXPECT_OK(notify_post(round % 2 ? "org.example.f.second" : "org.example.f.first"));
    EVENTUALLY(calls.count == 6);
    for (int round = 0; round < 6; round++) EXPECT_EQUAL(calls.tokens[round], round % 2 ? second : first);
    // The first registration has no `release`, so nothing is called when it ends.
    EXPECT_OK(notify_cancel(first));
    EXPECT_OK(notify_cancel(second));
    EVENTUALLY(calls.released == 1);
}

static void a_handler_may_cancel_its_token_and_its_context_is_released_afterwards(void) {
    static struct calls calls = {.cancels = 1};
    int token = -1;
    EXPECT_OK(notify_register_dispatch_f("org.example.f.once", &token, NULL, &calls, note, release));
    EXPECT_OK(notify_post("org.example.f.once"));
    EXPECT_OK(notify_post("org.example.f.once"));
    EVENTUALLY(calls.released);
    EXPECT_EQUAL(calls.count, 1);
    EXPECT_EQUAL(calls.last_token, token);
    EXPECT(!notify_is_valid_token(token));
}

static void a_running_call_keeps_the_context_and_none_begins_after_the_cancellation(void) {
    static struct calls calls = {.waits = 1};
    int token = -1;
    EXPECT_OK(notify_register_dispatch_f("org.example.f.slow", &token, NULL, &calls, note, release));
    for (int post = 0; post < 3; post++) EXPECT_OK(notify_post("org.example.f.slow"));
    EVENTUALLY(calls.is_running);
    settle();
    EXPECT_OK(notify_cancel(token));
    EXPECT_EQUAL(calls.released, 0);
    calls.waits = 0;
    EVENTUALLY(calls.released);
    EXPECT_EQUAL(calls.count, 1);
}

static void a_slow_handler_holds_sixteen_calls(void) {
    static struct calls calls = {.waits = 1};
    int token = -1;
    EXPECT_OK(notify_register_dispatch_f("org.example.f.burst", &token, NULL, &calls, note, release));
    EXPECT_OK(notify_post("org.example.f.burst"));
    EVENTUALLY(calls.is_running);
    for (int post = 0; post < 100; post++) EXPECT_OK(notify_post("org.example.f.burst"));
    // Descriptors are served while the handler waits.
    settle();
    calls.waits = 0;
    EVENTUALLY(calls.count == 17);
    EXPECT_OK(notify_cancel(token));
    EVENTUALLY(calls.released);
    EXPECT_EQUAL(calls.count, 17);
}

static void a_registration_that_fails_leaves_the_context_to_its_caller(void) {
    static struct calls calls;
    int token = 7;
    EXPECT_EQUAL(notify_register_dispatch_f("a", &token, NULL, &calls, NULL, release), NOTIFY_STATUS_NULL_INPUT);
    EXPECT_EQUAL(token, NOTIFY_TOKEN_INVALID);
    EXPECT_EQUAL(notify_register_dispatch_f(NULL, &token, NULL, &calls, note, release), NOTIFY_STATUS_INVALID_NAME);
    EXPECT_EQUAL(notify_register_dispatch_f("a", NULL, NULL, &calls, note, release), NOTIFY_STATUS_NULL_INPUT);
    // A relative path is refused only after the rest of the registration.
    const char *path = "com.apple.system.notify.service.path:relative";
    EXPECT_EQUAL(notify_register_dispatch_f(path, &token, NULL, &calls, note, release), NOTIFY_STATUS_INVALID_REQUEST);
    // A release would run on the queue, before later calls there.
    static struct calls later;
    EXPECT_OK(notify_register_dispatch_f("self.f.later", &token, NULL, &later, note, release));
    EXPECT_OK(notify_cancel(token));
    EVENTUALLY(later.released);
    EXPECT_EQUAL(calls.released, 0);
}

int main(void) {
    main_thread = pthread_self();
    calls_are_in_the_order_of_the_posts();
    a_handler_may_cancel_its_token_and_its_context_is_released_afterwards();
    a_running_call_keeps_the_context_and_none_begins_after_the_cancellation();
    a_slow_handler_holds_sixteen_calls();
    a_registration_that_fails_leaves_the_context_to_its_caller();
    return finish();
}
