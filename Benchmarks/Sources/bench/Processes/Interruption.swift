import Glibc
import Synchronization

/// Turns SIGINT, SIGTERM and SIGHUP into an error at the next wait, so that the bus, the peers and the temporary folder
/// go away in the ordinary way.
enum Interruption {
    private static let requested = Atomic(false)

    static func watch() {
        // Touched before a handler can run: the first access of a static may take a lock.
        requested.store(false, ordering: .relaxed)
        for number in [SIGINT, SIGTERM, SIGHUP] {
            signal(number) { _ in Interruption.requested.store(true, ordering: .relaxed) }
        }
    }

    /// Throws `.interrupted` once a signal has come.
    static func check() throws(BenchmarkError) {
        if requested.load(ordering: .relaxed) { throw BenchmarkError(.interrupted, "interrupted") }
    }
}
