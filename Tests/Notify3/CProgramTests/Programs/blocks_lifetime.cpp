// How long blocks and queues are kept. C++, because objects that a block captures have destructors.
#include "expect.h"
#include <atomic>
#include <dispatch/dispatch.h>

namespace {

char key;
std::atomic<int> copies{0}, misplaced_ends{0};

// Counts its instances, and records where the last one ends.
struct Witness {
    Witness() { copies++; }
    Witness(const Witness &) { copies++; }
    ~Witness() {
        copies--;
        if (dispatch_get_specific(&key) != &key) misplaced_ends++;
    }
};

dispatch_queue_t queue_here(void (*finalizer)(void *) = nullptr, void *context = nullptr) {
    auto queue = dispatch_queue_create("org.example.here", nullptr);
    dispatch_queue_set_specific(queue, &key, &key, nullptr);
    if (finalizer) {
        dispatch_set_context(queue, context);
        dispatch_set_finalizer_f(queue, finalizer);
    }
    return queue;
}

// The block and the object on the stack are gone when this returns. Only the library's copy remains.
int registered(dispatch_queue_t queue, const char *name, std::atomic<int> *calls) {
    int token = -1;
    Witness witness;
    EXPECT_OK(notify_register_dispatch(name, &token, queue, ^(int) {
        const Witness *kept = &witness;
        if (kept) (*calls)++;
    }));
    return token;
}

void the_block_is_released_on_its_queue() {
    // Rules, a.7: the block is copied until the registration is cancelled, and released on its queue.
    std::atomic<int> calls{0};
    auto queue = queue_here();
    int token = registered(queue, "org.example.block.lifetime", &calls);
    EXPECT_EQUAL(copies.load(), 1);
    EXPECT_OK(notify_post("org.example.block.lifetime"));
    EVENTUALLY(calls == 1);
    misplaced_ends = 0;
    dispatch_suspend(queue);
    EXPECT_OK(notify_cancel(token));
    settle();
    EXPECT_EQUAL(copies.load(), 1);
    dispatch_resume(queue);
    EVENTUALLY(copies == 0);
    EXPECT_EQUAL(misplaced_ends.load(), 0);
    dispatch_release(queue);
}

void the_queue_is_retained() {
    // a.2: the queue is retained until notify_cancel. The library's reference is the only one.
    static std::atomic<int> finalized{0};
    std::atomic<int> calls{0};
    auto queue = queue_here([](void *context) { ++*static_cast<std::atomic<int> *>(context); }, &finalized);
    int token = registered(queue, "org.example.block.queue", &calls);
    dispatch_release(queue);
    EXPECT_OK(notify_post("org.example.block.queue"));
    EVENTUALLY(calls == 1);
    EXPECT_EQUAL(finalized.load(), 0);
    EXPECT_OK(notify_cancel(token));
    EVENTUALLY(finalized == 1);
    EXPECT_EQUAL(copies.load(), 0);
}

void many_come_and_go() {
    // Nothing leaks, whenever the cancellation comes.
    std::atomic<int> calls{0};
    auto queue = queue_here();
    for (int i = 0; i < 500; i++) {
        int token = registered(queue, "org.example.block.many", &calls);
        if (i % 2) EXPECT_OK(notify_post("org.example.block.many"));
        if (i % 3 == 0) fence();
        EXPECT_OK(notify_cancel(token));
    }
    EVENTUALLY(copies == 0);
    dispatch_release(queue);
}

}  // namespace

int main() {
    the_block_is_released_on_its_queue();
    the_queue_is_retained();
    many_come_and_go();
    return finish();
}
