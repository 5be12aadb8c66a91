import DBusTransport
import Glibc
import Synchronization

/// What other threads have for the main one, in order; bounded, because standard output may be read slower than names are posted.
final class Inbox<Item: Sendable>: Sendable {
    private struct State {
        var items: [Item] = []
        var dropped = 0
    }

    private static var capacity: Int { 65_536 }

    /// Readable while something waits.
    let descriptor: CInt
    private let bell: CInt
    private let state = Locked(State())

    /// - Throws: ``DBusError/Code/noResources`` without descriptors.
    init() throws(DBusError) {
        var ends: [CInt] = [-1, -1]
        guard pipe(&ends) == 0 else {
            throw DBusError(
                .noResources,
                message: "pipe failed: \(String(cString: strerror(errno)))",
                attempted: "watch",
                remedy: "raise the limit of open files (ulimit -n)"
            )
        }
        (descriptor, bell) = (ends[0], ends[1])
        for end in ends {
            _ = fcntl(end, F_SETFD, FD_CLOEXEC)
            _ = fcntl(end, F_SETFL, O_NONBLOCK)
        }
    }

    deinit {
        close(descriptor)
        close(bell)
    }

    /// Adds one, from any thread. A full inbox drops and counts it.
    func add(_ item: Item) {
        state.withLock { state in
            if state.items.count < Self.capacity { state.items.append(item) } else { state.dropped += 1 }
        }
        wake()
    }

    /// Makes the descriptor readable.
    func wake() {
        var byte: UInt8 = 1
        // A full pipe is readable already.
        _ = write(bell, &byte, 1)
    }

    /// All that waits, and how many were dropped since this was asked last.
    func takeAll() -> (items: [Item], dropped: Int) {
        var bytes = [UInt8](repeating: 0, count: 4096)
        while read(descriptor, &bytes, bytes.count) == bytes.count {}
        return state.withLock { state in
            defer { state = State() }
            return (state.items, state.dropped)
        }
    }
}
