#ifndef CDISPATCHQUEUES_H
#define CDISPATCHQUEUES_H

// Queues and blocks of a C caller. Only the caller's libdispatch and blocks runtime may touch them, so their functions
// are looked up at run time. This library may contain its own copy of both for Swift, which must not touch the caller's
// objects.

/// Retains a queue.
void CDispatchQueues_retain(void *queue);
/// Releases a queue.
void CDispatchQueues_release(void *queue);
/// Has `work` called with `context` on the queue, asynchronously.
void CDispatchQueues_async(void *queue, void *context, void (*work)(void *context));
/// Returns a copy of a block, which has to be released; NULL if there is no memory.
void *CDispatchQueues_copyBlock(const void *block);
/// Releases a copy.
void CDispatchQueues_releaseBlock(void *block);
/// Calls a block of type `void (^)(int)`.
void CDispatchQueues_callBlock(void *block, int token);

#endif
