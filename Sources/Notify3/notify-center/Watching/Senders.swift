import Basics
import DBus
import NotifyCenter
import Synchronization

/// The sender of a post, as far as it is known.
struct Sender: Sendable, Equatable {
    var process: UInt32?
    var user: UInt32?
    /// The program's file.
    var program: String?
}

/// The lookup of a sender. It is resolved once.
final class SenderLookup: Sendable {
    private let state = Locked<Sender?>(nil)

    /// `nil` while the lookup is in progress.
    var answer: Sender? { state.withLock { $0 } }

    fileprivate func resolve(_ sender: Sender) { state.withLock { $0 = sender } }
}

/// Looks up the processes behind bus names, each once.
///
/// Many posters end right after their post, and then the bus knows nothing about them. So each connection is looked up
/// as soon as it appears, before it posts. A program that was found in this way is good enough for people, but is not
/// reliable: its process id may belong to another process by then.
final class Senders: Sendable {
    private let connection: DBusConnection
    private let onAnswer: @Sendable () -> Void
    private let lookups = Locked<[String: SenderLookup]>([:])
    /// Kept alive; filled once.
    private let leases = Locked<[any Sendable]>([])

    /// - Parameter onAnswer: Called on any thread after each finished lookup.
    /// - Throws: ``DBusError`` if the bus refuses to report new connections.
    init(_ connection: DBusConnection, onAnswer: @escaping @Sendable () -> Void) throws(DBusError) {
        self.connection = connection
        self.onAnswer = onAnswer
        let token = connection.onSignal { [weak self] message in
            guard let (name, owner) = message.ownerChange(), name.utf8.first == UInt8(ascii: ":") else { return }
            if owner.isEmpty { self?.forget(name) } else { _ = self?.lookup(name) }
        }
        // A restarted bus gives the same names to other connections.
        let events = try connection.onEvent { [weak self] event in
            if case .lost = event { self?.forgetAll() }
        }
        let bus = "org.freedesktop.DBus"
        let lease = try connection.addMatch(
            MatchRule(signalFrom: bus, path: "/org/freedesktop/DBus", interface: bus, member: "NameOwnerChanged")
        )
        leases.withLock { $0 = [token, events, lease] }
    }

    /// Returns the lookup of a unique name, and starts it if there is none yet. Returns `nil` for no name.
    func lookup(_ name: String?) -> SenderLookup? {
        guard let name else { return nil }
        let (lookup, isNew) = lookups.withLock { lookups -> (SenderLookup, Bool) in
            if let known = lookups[name] { return (known, false) }
            let lookup = SenderLookup()
            lookups[name] = lookup
            return (lookup, true)
        }
        if isNew { Task { await ask(name, for: lookup) } }
        return lookup
    }

    private func ask(_ name: String, for lookup: SenderLookup) async {
        // A poster that is gone stays unknown.
        let credentials = try? await connection.firstCredentials(of: name)
        lookup.resolve(
            Sender(process: credentials?.processID, user: credentials?.userID, program: credentials?.executable)
        )
        onAnswer()
    }

    private func forget(_ name: String) { lookups.withLock { _ = $0.removeValue(forKey: name) } }

    private func forgetAll() { lookups.withLock { $0 = [:] } }
}
