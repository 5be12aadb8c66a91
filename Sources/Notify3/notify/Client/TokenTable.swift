import Glibc
import Synchronization

/// The counter of each token, and the value that the token saw last. Readers use no locks, system calls or memory
/// management, so that `notify_check` may be called in a signal handler and costs nanoseconds.
///
/// The client gives out each number once, so a token is an index into a table of two levels, with chunks of 65 536
/// slots. When all tokens of a memory page are gone, the client returns the page to the kernel. A reader then finds
/// zeros there, which mean “no such token”.
///
/// A caller that changes the table must hold the client's lock. A reader needs no lock.
enum TokenTable {
    /// Zeros if there is no such token.
    private struct Slot: ~Copyable {
        /// The address of a ``PostCounter``'s value.
        let counter: Atomic<UInt>
        /// The counter's value at the token's last ``check(_:)``. 0 makes the next check report a post, because no
        /// counter has the value 0.
        let seen: Atomic<UInt>
    }

    private static let slotsPerChunk = 1 << 16
    private static let chunkCount = 1 << 15

    /// The address of an array of chunk addresses; 0 if there is none. It is 0 again in a forked child, because the
    /// parent's tokens are not valid there.
    private static let directory = Atomic<UInt>(0)

    // MARK: Reading

    /// Returns whether a post was counted since the last check; `nil` if there is no such token.
    @inline(__always)
    static func check(_ token: CInt) -> Bool? {
        guard let slot = slot(token), let counter = counter(of: slot) else { return nil }
        let count = counter.pointee.load(ordering: .acquiring)
        // Reads before it writes, because usually nothing has happened.
        if slot.pointee.seen.load(ordering: .relaxed) == count { return false }
        return slot.pointee.seen.exchange(count, ordering: .relaxed) != count
    }

    @inline(__always)
    static func isValid(_ token: CInt) -> Bool {
        guard let slot = slot(token) else { return false }
        return slot.pointee.counter.load(ordering: .acquiring) != 0
    }

    /// Returns the counter's value; `nil` if there is no such token.
    static func count(_ token: CInt) -> UInt? { slot(token).flatMap(counter)?.pointee.load(ordering: .acquiring) }

    @inline(__always)
    private static func slot(_ token: CInt) -> UnsafeMutablePointer<Slot>? {
        guard token >= 0, let chunks = chunks(), let slots = address(chunks[Int(token) / slotsPerChunk]) else {
            return nil
        }
        return slots + Int(token) % slotsPerChunk
    }

    @inline(__always)
    private static func chunks() -> UnsafeMutablePointer<UInt>? {
        UnsafeMutablePointer(bitPattern: directory.load(ordering: .acquiring))
    }

    /// A chunk's address is written once, before the first token in it is given out.
    @inline(__always)
    private static func address(_ chunk: UInt) -> UnsafeMutablePointer<Slot>? {
        UnsafeMutablePointer(bitPattern: chunk)
    }

    @inline(__always)
    private static func counter(of slot: UnsafeMutablePointer<Slot>) -> UnsafeMutablePointer<Atomic<UInt>>? {
        UnsafeMutablePointer(bitPattern: slot.pointee.counter.load(ordering: .acquiring))
    }

    // MARK: Changing

    /// Makes the token read this counter. Returns false if there is no memory left.
    static func insert(_ token: CInt, _ counter: PostCounter) -> Bool {
        guard makeRoom(for: token), let slot = slot(token) else { return false }
        slot.pointee.seen.store(0, ordering: .relaxed)
        slot.pointee.counter.store(UInt(bitPattern: counter.value), ordering: .releasing)
        return true
    }

    /// Makes the next ``check(_:)`` of this token, and of no other, report a post.
    static func forgetSeen(_ token: CInt) { slot(token)?.pointee.seen.store(0, ordering: .relaxed) }

    static func remove(_ token: CInt) { slot(token)?.pointee.counter.store(0, ordering: .releasing) }

    /// The number of tokens that share a memory page.
    static let tokensPerPage = max(4096, sysconf(CInt(_SC_PAGESIZE))) / MemoryLayout<Slot>.size

    /// Returns the page of a token to the kernel. All tokens of the page must have ended, and no new one may follow.
    static func discardPage(of token: CInt) {
        guard let slot = slot(token - token % CInt(tokensPerPage)) else { return }
        madvise(slot, tokensPerPage * MemoryLayout<Slot>.size, MADV_DONTNEED)
    }

    private static func makeRoom(for token: CInt) -> Bool {
        if directory.load(ordering: .acquiring) == 0 {
            guard let memory = zeros(chunkCount * MemoryLayout<UInt>.size) else { return false }
            directory.store(UInt(bitPattern: memory), ordering: .releasing)
        }
        guard let chunks = chunks() else { return false }
        let index = Int(token) / slotsPerChunk
        guard chunks[index] == 0 else { return true }
        guard let memory = zeros(slotsPerChunk * MemoryLayout<Slot>.size) else { return false }
        chunks[index] = UInt(bitPattern: memory)
        return true
    }

    /// Reserves zeroed memory, which the kernel provides at the first access.
    private static func zeros(_ size: Int) -> UnsafeMutableRawPointer? {
        let memory = mmap(nil, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        return memory == MAP_FAILED ? nil : memory
    }

    // MARK: Fork

    /// Forgets all tokens, in the child of a fork, where only plain stores are safe. The memory remains the copy of the
    /// parent's.
    static func forget() { directory.store(0, ordering: .releasing) }
}

/// Gives out tokens, each number once, and tells which pages of the token table are no longer needed.
struct TokenNumbers: Sendable {
    private let tokensPerPage: CInt
    /// Darwin's first token is 2, and some programs take 0 for “no token”.
    private var next: CInt = 2
    private var livePerPage: [CInt: Int] = [:]

    init(tokensPerPage: Int) { self.tokensPerPage = CInt(tokensPerPage) }

    /// Returns the next token; `nil` after two thousand million.
    mutating func take() -> CInt? {
        guard next < .max else { return nil }
        defer { next += 1 }
        livePerPage[next / tokensPerPage, default: 0] += 1
        return next
    }

    /// Ends a token. Returns whether its page has no live token, and will get none.
    mutating func end(_ token: CInt) -> Bool {
        let page = token / tokensPerPage
        guard let live = livePerPage[page] else { return false }
        livePerPage[page] = live - 1
        guard live == 1, next / tokensPerPage > page else { return false }
        livePerPage[page] = nil
        return true
    }

    /// Makes ``take()`` give out these numbers again, if they are the last that it gave out and no token is alive.
    mutating func takeBack(_ tokens: [CInt]) {
        guard let first = tokens.min(), tokens.count == Int(next - first), livePerPage.values.allSatisfy({ $0 == 0 })
        else { return }
        next = first
    }
}

/// The number of posts of a name, from 1 on. The name's tokens read it, even at the moment when the last of them ends.
/// So its memory is never freed; the next name reuses it.
struct PostCounter: Sendable {
    // The pointer is constant, and its target is atomic.
    nonisolated(unsafe) let value: UnsafeMutablePointer<Atomic<UInt>>

    fileprivate init(_ value: UnsafeMutablePointer<Atomic<UInt>>) { self.value = value }

    func increment() { value.pointee.wrappingAdd(1, ordering: .acquiringAndReleasing) }
}

/// The counters that no name uses.
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

    /// Returns a counter. It keeps its value, because the next name's tokens have not seen any.
    mutating func giveBack(_ counter: PostCounter) { free.append(counter) }
}
