import DBusTransport
import NotifyCenter
import Synchronization

/// Who posted, as far as it could be found out.
struct Sender: Sendable, Equatable {
    var process: UInt32?
    var user: UInt32?
    /// The program's file.
    var program: String?
}

/// A question that is answered once.
final class SenderLookup: Sendable {
    private let state = Locked<Sender?>(nil)

    /// `nil` while it is under way.
    var answer: Sender? { state.withLock { $0 } }

    fileprivate func resolve(_ sender: Sender) { state.withLock { $0 = sender } }
}

/// Finds out who is behind bus names, each once.
///
/// Many a poster ends as soon as it has posted, and the bus knows nothing of it then. So everybody who connects is asked for at once,
/// before there is a post. Found in this way the program is what people want to know, and not to be relied on: its process id may
/// by then be another's.
final class Senders: Sendable {
    private let connection: DBusConnection
    private let onAnswer: @Sendable () -> Void
    private let lookups = Locked<[String: SenderLookup]>([:])
    /// What is to be kept, filled once.
    private let leases = Locked<[any Sendable]>([])

    /// - Parameters:
    ///   - connection: the bus.
    ///   - onAnswer: is called, on any thread, after each answer.
    /// - Throws: ``DBusError`` where the bus refuses to tell who connects.
    init(_ connection: DBusConnection, onAnswer: @escaping @Sendable () -> Void) throws(DBusError) {
        self.connection = connection
        self.onAnswer = onAnswer
        let token = connection.onSignal { [weak self] message in
            guard message.isBusSignal("NameOwnerChanged"), let arguments = try? message.arguments(),
                arguments.count == 3, let name = arguments[0].stringValue, name.utf8.first == UInt8(ascii: ":")
            else { return }
            if arguments[2].stringValue == "" { self?.forget(name) } else { _ = self?.lookup(name) }
        }
        // A bus that was restarted gives the same names to others.
        let events = try connection.onEvent { [weak self] event in
            if case .lost = event { self?.forgetAll() }
        }
        let bus = "org.freedesktop.DBus"
        let lease = try connection.addMatch(
            MatchRule(signalFrom: bus, path: "/org/freedesktop/DBus", interface: bus, member: "NameOwnerChanged")
        )
        leases.withLock { $0 = [token, events, lease] }
    }

    /// Asks who has a unique name, unless that is known; `nil` for none.
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
