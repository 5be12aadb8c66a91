import DBusTransport
import Dispatch
import Glibc
import NotifyCenter
import notify

/// The registrations of this process, of each kind by its own function of notify(3). On the main thread.
final class Watchers {
    private let inbox: Inbox<Arrival>
    private let queue = DispatchQueue(label: "notifyutil")
    private(set) var registrations = Registrations()
    /// One for all registrations of the kind, as on Darwin.
    private(set) var port: CInt?
    private(set) var file: CInt?
    private var distributed: DistributedNotifyCenter?
    private var observations: [CInt: NotificationObservation] = [:]
    private var nextDistributedToken: CInt = 1

    init(inbox: Inbox<Arrival>) { self.inbox = inbox }

    /// Registers. In force on return.
    func add(_ watch: Watch) throws(Failure) {
        switch watch.source {
        case .darwin(let kind):
            let token = try register(watch.name, kind)
            registrations.add(Registrations.Entry(id: .darwin(token), watch: watch))
        case .distributed(let object):
            do throws(DBusError) {
                try observe(watch, object: object)
            } catch {
                throw Failure("watch", watch.name, cause: error)
            }
        }
    }

    /// Counts one report; the last ends the registration.
    ///
    /// - Returns: `nil` where it had ended before.
    func take(_ id: Registrations.ID) -> Registrations.Entry? {
        guard let (entry, isOver) = registrations.take(id) else { return nil }
        if isOver { end(entry) }
        return entry
    }

    private func end(_ entry: Registrations.Entry) {
        switch entry.id {
        case .distributed(let token): observations[token] = nil
        case .darwin(let token):
            // The descriptor is closed with its last token, and is the library's.
            if registrations.entries(where: { $0 == .port }).isEmpty { port = nil }
            if registrations.entries(where: { $0 == .file }).isEmpty { file = nil }
            notify_cancel(token)
        }
    }

    // MARK: Darwin's kinds

    private func register(_ name: String, _ kind: Kind) throws(Failure) -> CInt {
        var token = NOTIFY_TOKEN_INVALID
        let status =
            switch kind {
            case .port: registerPort(name, &token)
            case .file: registerFile(name, &token)
            case .check: notify_register_check(name, &token)
            case .plain: notify_register_plain(name, &token)
            case .signal(let signal): notify_register_signal(name, signal, &token)
            case .dispatch:
                notify_register_dispatch(name, &token, queue) { [inbox] token in inbox.add(.token(token, .now)) }
            }
        guard status == UInt32(NOTIFY_STATUS_OK) else { throw Failure("watch", name, status: status) }
        // The first answer is always yes, notify(3).
        if kind.isChecked { _ = isPosted(token) }
        return token
    }

    private func registerPort(_ name: String, _ token: inout CInt) -> UInt32 {
        var port = mach_port_t(bitPattern: self.port ?? -1)
        let status = notify_register_mach_port(name, &port, self.port == nil ? 0 : NOTIFY_REUSE, &token)
        if status == UInt32(NOTIFY_STATUS_OK) { self.port = CInt(bitPattern: port) }
        return status
    }

    private func registerFile(_ name: String, _ token: inout CInt) -> UInt32 {
        var file = self.file ?? -1
        let status = notify_register_file_descriptor(name, &file, self.file == nil ? 0 : NOTIFY_REUSE, &token)
        if status == UInt32(NOTIFY_STATUS_OK) { self.file = file }
        return status
    }

    /// Whether the token's name was posted since this was asked last.
    func isPosted(_ token: CInt) -> Bool {
        var check: CInt = 0
        return notify_check(token, &check) == UInt32(NOTIFY_STATUS_OK) && check != 0
    }

    /// The state of the token's name.
    func state(_ token: CInt) -> StateReading {
        var state: UInt64 = 0
        let status = notify_get_state(token, &state)
        return status == UInt32(NOTIFY_STATUS_OK) ? .value(state) : .failed(status)
    }

    // MARK: The distributed center

    private func observe(_ watch: Watch, object: String?) throws(DBusError) {
        let center = distributed ?? DistributedNotifyCenter()
        distributed = center
        let token = nextDistributedToken
        nextDistributedToken += 1
        let observation = try center.observe(
            NotificationName(watch.name),
            object: object,
            delivery: .immediate
        ) { [inbox] notification in
            inbox.add(.distributed(token, notification, .now))
        }
        observations[token] = observation
        registrations.add(Registrations.Entry(id: .distributed(token), watch: watch))
    }
}

extension Kind {
    /// Whether notify_check tells of its posts.
    fileprivate var isChecked: Bool {
        switch self {
        case .check, .plain, .signal: true
        case .port, .file, .dispatch: false
        }
    }

    /// Whether nothing but notify_check does.
    var isPolled: Bool { self == .check || self == .plain }
}

/// The registrations, and how often each still has to be reported. Pure.
struct Registrations {
    /// Tokens of notify(3), and the distributed center's, which this program gives out by itself.
    enum ID: Hashable, Sendable {
        case darwin(CInt)
        case distributed(CInt)
    }

    struct Entry: Equatable {
        let id: ID
        let name: String
        let source: Watch.Source
        /// `nil` for ever.
        fileprivate(set) var remaining: Int?

        init(id: ID, watch: Watch) {
            (self.id, name, source, remaining) = (id, watch.name, watch.source, watch.count)
        }

        /// `nil` for the distributed center.
        var kind: Kind? {
            if case .darwin(let kind) = source { kind } else { nil }
        }
    }

    /// In the order of the command line.
    private(set) var entries: [Entry] = []

    var isEmpty: Bool { entries.isEmpty }

    mutating func add(_ entry: Entry) { entries.append(entry) }

    /// The entries of a kind.
    func entries(where matches: (Kind) -> Bool) -> [Entry] {
        entries.filter { entry in
            guard let kind = entry.kind else { return false }
            return matches(kind)
        }
    }

    /// Counts one report of a registration.
    ///
    /// - Returns: the registration, and whether it has ended; `nil` where it had ended before.
    mutating func take(_ id: ID) -> (entry: Entry, isOver: Bool)? {
        guard let index = entries.firstIndex(where: { $0.id == id }) else { return nil }
        if let remaining = entries[index].remaining { entries[index].remaining = remaining - 1 }
        let entry = entries[index]
        guard entry.remaining == 0 else { return (entry, false) }
        entries.remove(at: index)
        return (entry, true)
    }
}
