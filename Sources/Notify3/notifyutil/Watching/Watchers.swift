import CommandSupport
import Glibc
import NotifyCenter
import notify

/// The registrations of this process. Each kind uses its own function of notify(3). Used on the main thread.
final class Watchers {
    private(set) var registrations = Registrations()
    /// One descriptor for all registrations of the kind, as on Darwin. The library owns it and closes it with its last
    /// token.
    private var port: CInt?
    private var file: CInt?
    private var pipe: TokenPipe?

    var descriptors: [CInt] { [port, file, pipe?.descriptor].compactMap(\.self) }

    /// Registers a name. In force on return.
    func add(_ watch: Watch) throws(Failure) {
        var token = NOTIFY_TOKEN_INVALID
        let status =
            switch watch.kind {
            case .port: registerPort(watch.name, &token)
            case .file: registerFile(watch.name, &token)
            case .check: notify_register_check(watch.name, &token)
            case .plain: notify_register_plain(watch.name, &token)
            case .signal(let signal): notify_register_signal(watch.name, signal, &token)
            case .dispatch: registerDispatch(watch.name, &token)
            }
        guard status == UInt32(NOTIFY_STATUS_OK) else { throw Failure("watch", watch.name, status: status) }
        // The first check of a token is always true (Rules, a.7).
        if watch.kind.isChecked { _ = isPosted(token) }
        registrations.add(Registrations.Entry(token: token, watch: watch))
    }

    /// Counts one report. The last one ends the registration. Returns `nil` if the registration had ended before.
    func take(_ token: CInt) -> Registrations.Entry? {
        guard let (entry, isOver) = registrations.take(token) else { return nil }
        if isOver {
            if registrations.entries(where: { $0 == .port }).isEmpty { port = nil }
            if registrations.entries(where: { $0 == .file }).isEmpty { file = nil }
            notify_cancel(token)
        }
        return entry
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

    private func registerDispatch(_ name: String, _ token: inout CInt) -> UInt32 {
        // `nil` if there are no descriptors left.
        guard let pipe = pipe ?? TokenPipe() else { return UInt32(NOTIFY_STATUS_FAILED) }
        self.pipe = pipe
        return notify_register_dispatch(name, &token, pipe.queue) { pipe.add($0) }
    }

    func isPosted(_ token: CInt) -> Bool {
        var check: CInt = 0
        return notify_check(token, &check) == UInt32(NOTIFY_STATUS_OK) && check != 0
    }

    func state(_ token: CInt) -> StateReading {
        var state: UInt64 = 0
        let status = notify_get_state(token, &state)
        return status == UInt32(NOTIFY_STATUS_OK) ? .value(state) : .failed(status)
    }
}

extension Kind {
    /// Whether notify_check reports its posts.
    fileprivate var isChecked: Bool {
        switch self {
        case .check, .plain, .signal: true
        case .port, .file, .dispatch: false
        }
    }

    /// Whether only notify_check reports its posts.
    var isPolled: Bool { self == .check || self == .plain }
}

/// The registrations, and the number of reports that each still has to make. Pure.
struct Registrations {
    struct Entry: Equatable {
        let token: CInt
        let name: String
        let kind: Kind
        /// `nil` for no limit.
        fileprivate(set) var remaining: Int?

        init(token: CInt, watch: Watch) {
            (self.token, name, kind, remaining) = (token, watch.name, watch.kind, watch.count)
        }
    }

    /// In the order of the command line.
    private(set) var entries: [Entry] = []

    var isEmpty: Bool { entries.isEmpty }

    mutating func add(_ entry: Entry) { entries.append(entry) }

    func entries(where matches: (Kind) -> Bool) -> [Entry] { entries.filter { matches($0.kind) } }

    /// Counts one report of a registration. Returns the registration, and whether it has ended; `nil` if it had ended
    /// before.
    mutating func take(_ token: CInt) -> (entry: Entry, isOver: Bool)? {
        guard let index = entries.firstIndex(where: { $0.token == token }) else { return nil }
        if let remaining = entries[index].remaining { entries[index].remaining = remaining - 1 }
        let entry = entries[index]
        guard entry.remaining == 0 else { return (entry, false) }
        entries.remove(at: index)
        return (entry, true)
    }
}
