import CDispatchQueues

/// A copy of a block of type `void (^)(int)`, made by the caller's blocks runtime and given back to it.
final class CallersBlock: @unchecked Sendable {
    // Unchecked: the pointer is constant, and a C caller answers for what the block does on which thread.
    private let block: UnsafeMutableRawPointer

    /// `nil` without memory.
    init?(_ block: UnsafeRawPointer) {
        guard let copy = CDispatchQueues_copyBlock(block) else { return nil }
        self.block = copy
    }

    deinit { CDispatchQueues_releaseBlock(block) }

    @Sendable func call(_ token: CInt) { CDispatchQueues_callBlock(block, token) }
}
