#define _GNU_SOURCE
#include "CDispatchQueues.h"
#include <dlfcn.h>
#include <stdatomic.h>

// This library's own functions, for the case that the caller's are not found by name: in a statically linked program
// both are the same.
extern void dispatch_retain(void *object);
extern void dispatch_release(void *object);
extern void dispatch_async_f(void *queue, void *context, void (*work)(void *));
extern void *_Block_copy(const void *block);
extern void _Block_release(const void *block);

// The program and its libraries use the first definition in the order of the dynamic linker. It is looked up once: a
// caller that passes a queue or a block has loaded the library that made it, and the order does not change afterwards.
// Threads that look it up at the same time find the same function, so no lock is needed. No data depends on the
// pointer, so no memory ordering is needed.
#define CALLERS(function) \
    ({ \
        static _Atomic(__typeof__(&function)) known; \
        __typeof__(&function) callers = atomic_load_explicit(&known, memory_order_relaxed); \
        if (!callers) { \
            callers = (__typeof__(&function))dlsym(RTLD_DEFAULT, #function); \
            if (!callers) callers = &function; \
            atomic_store_explicit(&known, callers, memory_order_relaxed); \
        } \
        callers; \
    })

void CDispatchQueues_retain(void *queue) { CALLERS(dispatch_retain)(queue); }

void CDispatchQueues_release(void *queue) { CALLERS(dispatch_release)(queue); }

void CDispatchQueues_async(void *queue, void *context, void (*work)(void *)) {
    CALLERS(dispatch_async_f)(queue, context, work);
}

void *CDispatchQueues_copyBlock(const void *block) { return CALLERS(_Block_copy)(block); }

void CDispatchQueues_releaseBlock(void *block) { CALLERS(_Block_release)(block); }

// The beginning of every block (Clang's block implementation specification).
struct block {
    void *isa;
    int flags;
    int reserved;
    void (*invoke)(void *, int);
};

void CDispatchQueues_callBlock(void *block, int token) { ((struct block *)block)->invoke(block, token); }
