import DBusTransport
import NotifyCenter
import Synchronization

/// One post of anybody.
struct MonitoredPost: Sendable {
    enum Content: Sendable {
        case darwin
        case distributed(object: String?, userInfo: UserInfo?)
    }

    let time: Timestamp
    let name: String
    /// The poster's unique bus name.
    let sender: String?
    let content: Content
}

/// `--monitor`: posts of both centers with who posted them. Lines come in the order of the posts, each when its sender is known. On
/// the main thread.
final class Monitor {
    private let inbox: Inbox<Arrival>
    private let senders: Senders
    private let darwin: DarwinNotifyCenter
    private let distributed: DistributedNotifyCenter
    private var observations: [NotificationObservation] = []
    private var waiting: ArraySlice<(post: MonitoredPost, sender: SenderLookup?)> = []

    /// - Throws: ``DBusError`` where the bus cannot be reached.
    init(inbox: Inbox<Arrival>) throws(DBusError) {
        self.inbox = inbox
        let connection = try BusConnections.connection(to: .fromEnvironment)
        senders = try Senders(connection) { inbox.wake() }
        darwin = DarwinNotifyCenter(connection: connection)
        distributed = DistributedNotifyCenter(connection: connection)
    }

    /// Observes these names; without any, all.
    ///
    /// - Throws: ``DBusError`` where the bus refuses.
    func observe(_ names: [String]) throws(DBusError) {
        for name in names.isEmpty ? [nil] : names.map({ NotificationName($0) }) {
            let (inbox, senders) = (inbox, senders)
            observations.append(
                try darwin.observeAny(name) { notification in
                    let post = MonitoredPost(
                        time: .now,
                        name: notification.name.rawValue,
                        sender: notification.sender,
                        content: .darwin
                    )
                    inbox.add(.post(post, senders.lookup(post.sender)))
                }
            )
            observations.append(
                try distributed.observe(name, delivery: .immediate) { notification in
                    let post = MonitoredPost(
                        time: .now,
                        name: notification.name.rawValue,
                        sender: notification.sender,
                        content: .distributed(object: notification.object, userInfo: notification.userInfo)
                    )
                    inbox.add(.post(post, senders.lookup(post.sender)))
                }
            )
        }
    }

    /// Takes a post that is to be printed.
    func add(_ post: MonitoredPost, _ sender: SenderLookup?) { waiting.append((post, sender)) }

    /// Prints those at the front whose sender is known, or known to be gone.
    func printKnown(_ style: Style) {
        while let (post, lookup) = waiting.first {
            var sender = Sender()
            if let lookup {
                guard let answer = lookup.answer else { return }
                sender = answer
            }
            waiting.removeFirst()
            if style.verbosity != .quiet { Output.standard.write(style.line(post, sender) + "\n") }
        }
    }
}

extension Style {
    /// A post's line.
    func line(_ post: MonitoredPost, _ sender: Sender) -> String {
        if isJSON { return json(post, sender) }
        let process = sender.process.map { "\($0)" } ?? "-"
        let program = sender.program?.visible ?? "-"
        let start = "\(post.time.text) \(post.name.visible)"
        switch post.content {
        case .darwin: return "\(start) darwin \(process) \(program)"
        case .distributed(let object, let userInfo):
            let payload = "\(object.map(JSONLine.quoted) ?? "-") \(userInfo?.json ?? "-")"
            return "\(start) distributed \(process) \(program) \(payload)"
        }
    }

    private func json(_ post: MonitoredPost, _ sender: Sender) -> String {
        var line = JSONLine("post")
        line.add("name", post.name)
        line.add("time", json: post.time.text)
        switch post.content {
        case .darwin: line.add("center", "darwin")
        case .distributed: line.add("center", "distributed")
        }
        line.add("sender", post.sender)
        line.add("pid", sender.process)
        line.add("uid", sender.user)
        line.add("program", sender.program)
        if case .distributed(let object, let userInfo) = post.content {
            line.add("object", object)
            line.add("userinfo", json: userInfo?.json ?? "null")
        }
        return line.text
    }
}

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
