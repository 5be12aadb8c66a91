#define _GNU_SOURCE
#include "CDispatchQueues.h"
#include <dlfcn.h>
#include <stdatomic.h>

// This library's own, where the caller's are not to be found by name: in a program that is linked as a whole they are the same.
extern void dispatch_retain(void *object);
extern void dispatch_release(void *object);
extern void dispatch_async_f(void *queue, void *context, void (*work)(void *));
extern void *_Block_copy(const void *block);
extern void _Block_release(const void *block);

// The first in the order of the dynamic linker is the one that the program and its libraries use. It is looked up once: who has
// a queue or a block to hand over has loaded what made it, and the order does not change afterwards. Threads that come here first
// together find the same, so nothing has to be locked; no data hangs on the pointer, so nothing has to be ordered.
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

// What every block begins with (Clang's block implementation specification).
struct block {
    void *isa;
    int flags;
    int reserved;
    void (*invoke)(void *, int);
};

void CDispatchQueues_callBlock(void *block, int token) { ((struct block *)block)->invoke(block, token); }
