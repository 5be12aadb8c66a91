#if NOTIFY_CENTER_TSAN
package import Glibc

/// The project's one lock, as ThreadSanitizer understands it: it reports false races for `Synchronization.Mutex`.
package final class Locked<Value: ~Copyable>: @unchecked Sendable {
    // Unchecked: `value` is touched with `mutex` held, and neither address changes. On the heap, because a stored value without
    // size would share its address with a neighbour, which looks like a race.
    private let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
    private let value = UnsafeMutablePointer<Value>.allocate(capacity: 1)

    package init(_ value: consuming sending Value) {
        self.value.initialize(to: value)
        pthread_mutex_init(mutex, nil)
    }

    deinit {
        pthread_mutex_destroy(mutex)
        mutex.deallocate()
        value.deinitialize(count: 1)
        value.deallocate()
    }

    package borrowing func withLock<Result: ~Copyable, Failure: Error>(
        _ body: (inout sending Value) throws(Failure) -> sending Result
    ) throws(Failure) -> sending Result {
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        return try body(&value.pointee)
    }
}
#else
package import Synchronization

/// The project's one lock. No foreign code runs while it is held.
package typealias Locked = Mutex
#endif
