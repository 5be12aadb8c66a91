#ifndef CDISPATCHQUEUES_H
#define CDISPATCHQUEUES_H

// Queues and blocks that a C caller hands over. They are the business of the caller's libdispatch and blocks runtime, which are
// looked up at run time: where this library carries a copy of its own for Swift's sake, that copy must not touch them.

/// Retains a queue.
void CDispatchQueues_retain(void *queue);
/// Releases a queue.
void CDispatchQueues_release(void *queue);
/// Has `work` called with `context` on the queue, asynchronously.
void CDispatchQueues_async(void *queue, void *context, void (*work)(void *context));
/// A copy of a block, to be released; NULL without memory.
void *CDispatchQueues_copyBlock(const void *block);
/// Releases a copy.
void CDispatchQueues_releaseBlock(void *block);
/// Calls a block of type `void (^)(int)`.
void CDispatchQueues_callBlock(void *block, int token);

#endif
