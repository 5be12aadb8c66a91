package import DBusTransport
import Synchronization

/// One connection per bus for all centers of the process, so that they share match rules and a thread. It closes with its
/// last user.
package enum BusConnections {
    private struct Weak {
        weak var connection: DBusConnection?
    }

    private static let open = Locked<[Bus: Weak]>([:])

    /// The process's connection to `bus`; made if there is none.
    package static func connection(to bus: Bus) throws(DBusError) -> DBusConnection {
        if let connection = open.withLock({ $0[bus]?.connection }) { return connection }
        // Outside the lock, because a bus may be slow to answer; who comes second takes the first one's.
        let fresh = try DBusConnection.open(bus)
        return open.withLock { open in
            if let connection = open[bus]?.connection { return connection }
            open[bus] = Weak(connection: fresh)
            return fresh
        }
    }
}
