import CLinux
import Glibc
public import Synchronization

// MARK: The lock

#if NOTIFY_CENTER_TSAN
/// The project's lock for ThreadSanitizer, which reports false races for `Synchronization.Mutex`.
public typealias Locked = PosixLocked
#else
/// The project's lock, except for state of a forked child (``PosixLocked``). Runs no code of callers while held.
public typealias Locked = Mutex
#endif

/// A lock for state that a forked child uses. `Synchronization.Mutex` stores its owner's thread number, which differs
/// in the child: the process would abort if two threads of the child contend for the lock.
public final class PosixLocked<Value: ~Copyable>: @unchecked Sendable {
    // Unchecked: `value` is accessed only with `mutex` held, and neither address changes. On the heap, because a stored
    // value of size zero would share its address with a neighbour, which ThreadSanitizer would report as a race.
    private let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
    private let value = UnsafeMutablePointer<Value>.allocate(capacity: 1)

    public init(_ value: consuming sending Value) {
        self.value.initialize(to: value)
        pthread_mutex_init(mutex, nil)
    }

    deinit {
        pthread_mutex_destroy(mutex)
        mutex.deallocate()
        value.deinitialize(count: 1)
        value.deallocate()
    }

    public borrowing func withLock<Result: ~Copyable, Failure: Error>(
        _ body: (inout sending Value) throws(Failure) -> sending Result
    ) throws(Failure) -> sending Result {
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        return try body(&value.pointee)
    }
}

/// State of this process. A forked child starts over: a thread of the parent may have held the lock at the fork.
public final class PerProcess<Value: Sendable>: Sendable {
    private final class Box: Sendable {
        let generation = CLinux_forkGeneration()
        let value: PosixLocked<Value>

        init(_ value: Value) { self.value = PosixLocked(value) }
    }

    /// The address of a ``Box``, which is never released; 0 before the first use.
    private let current = Atomic<UInt>(0)
    private let initial: Value

    public init(_ initial: Value) { self.initial = initial }

    public func withLock<Result, Failure: Error>(
        _ body: (inout sending Value) throws(Failure) -> sending Result
    ) throws(Failure) -> sending Result { try box().value.withLock(body) }

    private func box() -> Box {
        while true {
            let known = current.load(ordering: .acquiring)
            if let pointer = UnsafeRawPointer(bitPattern: known) {
                let box = Unmanaged<Box>.fromOpaque(pointer).takeUnretainedValue()
                if box.generation == CLinux_forkGeneration() { return box }
            }
            let fresh = Unmanaged.passRetained(Box(initial))
            let address = UInt(bitPattern: fresh.toOpaque())
            if current.compareExchange(expected: known, desired: address, ordering: .acquiringAndReleasing).exchanged {
                return fresh.takeUnretainedValue()
            }
            fresh.release()
        }
    }
}

/// A reference that is stored once and read without a lock, also in a forked child. `AtomicLazyReference` looks up
/// metadata at each load, which costs more than a lock.
public struct StoredOnce<Object: AnyObject & Sendable>: ~Copyable, Sendable {
    /// The address of the retained object; 0 before it is stored.
    @usableFromInline let address = Atomic<UInt>(0)

    public init() {}

    deinit {
        let address = UnsafeRawPointer(bitPattern: address.load(ordering: .acquiring))
        if let address { Unmanaged<Object>.fromOpaque(address).release() }
    }

    @inlinable public func load() -> Object? {
        UnsafeRawPointer(bitPattern: address.load(ordering: .acquiring)).map {
            Unmanaged<Object>.fromOpaque($0).takeUnretainedValue()
        }
    }

    /// - Returns: the stored object: this one, or the object that was stored earlier.
    @inlinable public func storeIfNil(_ object: Object) -> Object {
        let fresh = Unmanaged.passRetained(object)
        let result = address.compareExchange(
            expected: 0,
            desired: UInt(bitPattern: fresh.toOpaque()),
            ordering: .acquiringAndReleasing
        )
        if result.exchanged { return object }
        fresh.release()
        return load() ?? object
    }
}

// MARK: - Threads

/// Starts threads with signals blocked, so that signals reach the app's own threads (architecture, D3). The signals of
/// a crash are not blocked: the kernel would end the process without calling the handler that reports the crash.
public enum QuietThread {
    private static let crashSignals = [SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS]

    /// Runs `body` on a detached thread with this name.
    ///
    /// - Returns: the thread; `nil`, with `errno` set, if the system grants none. Then `body` is not called.
    public static func start(_ name: StaticString, _ body: @escaping @Sendable () -> Void) -> UInt? {
        var blocked = sigset_t()
        var previous = sigset_t()
        sigfillset(&blocked)
        for signal in crashSignals { sigdelset(&blocked, signal) }
        pthread_sigmask(SIG_SETMASK, &blocked, &previous)
        defer { pthread_sigmask(SIG_SETMASK, &previous, nil) }
        let work = Unmanaged.passRetained(Work(name, body))
        var thread = pthread_t()
        let start: @convention(c) (UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer? = { argument in
            if let argument { Unmanaged<Work>.fromOpaque(argument).takeRetainedValue().run() }
            return nil
        }
        let code = pthread_create(&thread, nil, start, work.toOpaque())
        guard code == 0 else {
            work.release()
            errno = code
            return nil
        }
        pthread_detach(thread)
        return UInt(thread)
    }

    private final class Work: Sendable {
        private let name: StaticString
        private let body: @Sendable () -> Void

        init(_ name: StaticString, _ body: @escaping @Sendable () -> Void) { (self.name, self.body) = (name, body) }

        func run() {
            CLinux_nameThisThread(UnsafeRawPointer(name.utf8Start).assumingMemoryBound(to: CChar.self))
            body()
        }
    }
}

// MARK: - Waking a thread

/// The timeout for `poll`, rounded up so that the caller does not wake before the deadline. At most 23 days.
public func milliseconds(until deadline: ContinuousClock.Instant) -> Int32 {
    let (seconds, attoseconds) = (deadline - ContinuousClock.now).components
    guard seconds >= 0, attoseconds >= 0 else { return 0 }
    return Int32(clamping: min(seconds, 2_000_000) * 1000 + attoseconds / 1_000_000_000_000_000 + 1)
}

/// A descriptor that becomes readable when any thread signals; one thread polls it.
///
/// A pair of sockets, because an eventfd cannot be distinguished from a file that the program opens under the same
/// number. When the program closes the writing end, the thread that polls the other end wakes.
public struct EventDescriptor: ~Copyable, Sendable {
    private let reading: Atomic<UInt64>
    private let writing: Atomic<UInt64>

    /// The descriptor to poll. Negative if the program has closed it and the system grants no other.
    public var descriptor: CInt { OwnedDescriptor(bits: reading.load(ordering: .acquiring)).number }

    /// - Parameter purpose: the attempted action, for errors.
    public init(_ purpose: String) throws(OutOfDescriptors) {
        guard let (reading, writing) = Self.pair() else {
            throw OutOfDescriptors(purpose, call: "socketpair", error: errno)
        }
        self.reading = Atomic(reading.bits)
        self.writing = Atomic(writing.bits)
    }

    private static func pair() -> (OwnedDescriptor, OwnedDescriptor)? {
        StandardDescriptors.leavingFree { OwnedDescriptor.pair(isBlocking: false) }
    }

    deinit {
        OwnedDescriptor(bits: reading.load(ordering: .acquiring)).close()
        OwnedDescriptor(bits: writing.load(ordering: .acquiring)).close()
    }

    public func signal() {
        let writing = OwnedDescriptor(bits: writing.load(ordering: .acquiring))
        guard writing.isIntact else { return }
        // If the sockets are full (EAGAIN), the descriptor is readable already.
        _ = send(writing.number, "!", 1, CInt(MSG_NOSIGNAL))
    }

    /// Makes the descriptor unreadable. Called by the polling thread.
    public func clear() {
        if restoreIfClosed() { return }
        withUnsafeTemporaryAllocation(byteCount: 4096, alignment: 1) { buffer in
            while recv(descriptor, buffer.baseAddress, buffer.count, 0) == buffer.count {}
        }
    }

    /// Opens another pair if the program has closed an end of this one. Called by the polling thread.
    ///
    /// - Returns: whether an end was closed. Signals may then be lost.
    public func restoreIfClosed() -> Bool {
        let oldReading = OwnedDescriptor(bits: reading.load(ordering: .acquiring))
        let oldWriting = OwnedDescriptor(bits: writing.load(ordering: .acquiring))
        if oldReading.isIntact, oldWriting.isIntact { return false }
        oldReading.close()
        oldWriting.close()
        let (reading, writing) = Self.pair() ?? (.none, .none)
        self.reading.store(reading.bits, ordering: .releasing)
        self.writing.store(writing.bits, ordering: .releasing)
        return true
    }
}
