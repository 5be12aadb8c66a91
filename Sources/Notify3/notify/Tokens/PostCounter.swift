import Synchronization

/// How often a name was posted, from 1 on. Read by whoever holds one of the name's tokens, also at the moment when the name's
/// last token goes: so the memory is never given back, but to the next name.
struct PostCounter: Sendable {
    // The pointer is constant and what it points to atomic.
    nonisolated(unsafe) let value: UnsafeMutablePointer<Atomic<UInt>>

    fileprivate init(_ value: UnsafeMutablePointer<Atomic<UInt>>) { self.value = value }

    /// Counts a post.
    func increment() { value.pointee.wrappingAdd(1, ordering: .acquiringAndReleasing) }
}

/// The counters that no name has.
struct PostCounterPool: Sendable {
    private static let slabSize = 256
    private var free: [PostCounter] = []

    mutating func take() -> PostCounter {
        if free.isEmpty {
            let slab = UnsafeMutablePointer<Atomic<UInt>>.allocate(capacity: Self.slabSize)
            for index in 0..<Self.slabSize {
                (slab + index).initialize(to: Atomic(1))
                free.append(PostCounter(slab + index))
            }
        }
        return free.removeLast()
    }

    /// It keeps its value: the next name's tokens have seen nothing.
    mutating func giveBack(_ counter: PostCounter) { free.append(counter) }
}
