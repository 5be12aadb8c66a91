// Blocks on queues. functions.c tests what blocks and functions have in common.
#include "expect.h"
#include <dispatch/dispatch.h>
#include <pthread.h>
#include <stdatomic.h>

static char key;

// A serial queue that `is_here` recognizes.
static dispatch_queue_t queue_here(void) {
    dispatch_queue_t queue = dispatch_queue_create("org.example.here", DISPATCH_QUEUE_SERIAL);
    dispatch_queue_set_specific(queue, &key, &key, NULL);
    return queue;
}

static int is_here(void) { return dispatch_get_specific(&key) == &key; }

// Waits until all jobs of the queue have run.
static void drain(dispatch_queue_t queue) {
    dispatch_sync(queue, ^{
    });
}

static void handlers_are_called(void) {
    dispatch_queue_t queue = queue_here();
    __block atomic_int calls = 0, misplaced = 0, last = -1;
    int token = -1;
    EXPECT_OK(notify_register_dispatch("org.example.block", &token, queue, ^(int t) {
        if (!is_here()) atomic_fetch_add(&misplaced, 1);
        atomic_store(&last, t);
        atomic_fetch_add(&calls, 1);
    }));
    EXPECT_EQUAL(atomic_load(&calls), 0);
    EXPECT_OK(notify_post("org.example.block"));
    EVENTUALLY(atomic_load(&calls) == 1);
    EXPECT_EQUAL(atomic_load(&last), token);
    post_elsewhere("org.example.block");
    EVENTUALLY(atomic_load(&calls) == 2);
    EXPECT_EQUAL(atomic_load(&misplaced), 0);
    // Rules, a.2: it can be checked like any token.
    EXPECT_EQUAL(checked(token), 1);
    EXPECT_EQUAL(checked(token), 0);
    EXPECT_OK(notify_cancel(token));
    EXPECT_OK(notify_post("org.example.block"));
    settle();
    drain(queue);
    EXPECT_EQUAL(atomic_load(&calls), 2);
    dispatch_release(queue);
}

static void null_arguments(void) {
    int token = 7;
    dispatch_queue_t queue = queue_here();
    notify_handler_t handler = ^(int t) {
        (void)t;
    };
    // a.1, a.8: the status reports the error, and nothing crashes.
    EXPECT_EQUAL(notify_register_dispatch(NULL, &token, queue, handler), NOTIFY_STATUS_INVALID_NAME);
    EXPECT_EQUAL(notify_register_dispatch("org.example.null", &token, NULL, handler), NOTIFY_STATUS_NULL_INPUT);
    EXPECT_EQUAL(notify_register_dispatch("org.example.null", &token, queue, NULL), NOTIFY_STATUS_NULL_INPUT);
    EXPECT_EQUAL(notify_register_dispatch("org.example.null", NULL, queue, handler), NOTIFY_STATUS_NULL_INPUT);
    dispatch_release(queue);
}

// The thread that handled a signal to the process.
static pthread_t signalled;

static void note_thread(int number) {
    (void)number;
    signalled = pthread_self();
}

struct note {
    atomic_int calls, misplaced, released;
};

static void call_note(void *context, int token) {
    (void)token;
    struct note *note = context;
    if (!is_here()) atomic_fetch_add(&note->misplaced, 1);
    atomic_fetch_add(&note->calls, 1);
}

static void release_note(void *context) {
    struct note *note = context;
    if (!is_here()) atomic_fetch_add(&note->misplaced, 1);
    atomic_fetch_add(&note->released, 1);
}

static void functions_are_called_on_their_queue(void) {
    dispatch_queue_t queue = queue_here();
    static struct note note;
    int token = -1;
    EXPECT_OK(notify_register_dispatch_f("org.example.function", &token, queue, &note, call_note, release_note));
    EXPECT_OK(notify_post("org.example.function"));
    EVENTUALLY(atomic_load(&note.calls) == 1);
    EXPECT_EQUAL(atomic_load(&note.released), 0);
    EXPECT_OK(notify_cancel(token));
    drain(queue);
    EXPECT_EQUAL(atomic_load(&note.released), 1);
    EXPECT_EQUAL(atomic_load(&note.misplaced), 0);
    dispatch_release(queue);
}

static void signals_reach_the_program(void) {
    // The library's threads, and those of its libdispatch, block signals.
    signal(SIGUSR2, note_thread);
    int token = -1;
    __block atomic_int calls = 0;
    EXPECT_OK(notify_register_dispatch("org.example.block.busy", &token, dispatch_get_global_queue(0, 0), ^(int t) {
        (void)t;
        atomic_fetch_add(&calls, 1);
    }));
    for (int i = 0; i < 200; i++) {
        EXPECT_OK(notify_post("org.example.block.busy"));
        memset(&signalled, 0, sizeof signalled);
        EXPECT_EQUAL(kill(getpid(), SIGUSR2), 0);
        EXPECT(pthread_equal(signalled, pthread_self()));
    }
    EVENTUALLY(atomic_load(&calls) > 0);
    EXPECT_OK(notify_cancel(token));
}

int main(int argc, char **argv) {
    take_role(argc, argv);
    handlers_are_called();
    null_arguments();
    functions_are_called_on_their_queue();
    signals_reach_the_program();
    return finish();
}
