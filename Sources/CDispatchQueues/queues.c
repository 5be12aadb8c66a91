#define _GNU_SOURCE
#include "CDispatchQueues.h"
#include <dlfcn.h>

// This process's own, where the caller's are not to be found by name: in a program that is linked as a whole they are the same.
extern void dispatch_retain(void *object);
extern void dispatch_release(void *object);
extern void dispatch_async_f(void *queue, void *context, void (*work)(void *));
extern void *_Block_copy(const void *block);
extern void _Block_release(const void *block);

// The first in the order of the dynamic linker is the one that the program and its libraries use.
#define CALLERS(function) \
    ({ \
        void *found = dlsym(RTLD_DEFAULT, #function); \
        found ? (__typeof__(&function))found : &function; \
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
