import DBusTransport
import NotifyCenter

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
