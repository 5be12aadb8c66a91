import DBusTransport
import Fleet
import Glibc
import Synchronization

/// The controller on the bus. Root and the controller's own user may call it; the bus's policy may keep others away before.
final class ControllerInterface: Sendable {
    private typealias Fields = [String: DBusValue]

    let service: ControllerService
    let connection: DBusConnection
    /// How many of the calls that write to the disk are under way, and of those that count all devices.
    private let underWay = Locked((writing: 0, counting: 0))

    init(service: ControllerService, connection: DBusConnection) {
        self.service = service
        self.connection = connection
    }

    /// What callers may have it do at once: each of them is root or the controller's own user, and a mistake of a script's must not hold up orders.
    static var limits: CallLimits {
        var limits = CallLimits()
        limits.callsOfSender = 32
        limits.calls = 256
        return limits
    }

    /// How many orders and changes of the list wait for the disk, and how many questions about orders are open.
    private static let most = (writing: 8, counting: 64)

    /// Decides on a call before anything of it is read.
    func admit(_ call: CallHeader) -> CallAdmission {
        let isWriting: Bool
        switch FleetProtocol.Method(rawValue: call.member) {
        case .signOut, .listDevices: isWriting = true
        case .getOrder, .getOrders, .getDevices: isWriting = false
        case nil: return .take()
        }
        let hasRoom = underWay.withLock { underWay in
            let hasRoom = isWriting ? underWay.writing < Self.most.writing : underWay.counting < Self.most.counting
            guard hasRoom else { return false }
            if isWriting { underWay.writing += 1 } else { underWay.counting += 1 }
            return true
        }
        guard hasRoom else {
            return .refuse(
                MethodFailure(
                    name: "org.freedesktop.DBus.Error.LimitsExceeded",
                    message: "too many requests are under way; wait for an answer, and name many devices in one request"
                )
            )
        }
        return .take(ended: { [self] in
            underWay.withLock { if isWriting { $0.writing -= 1 } else { $0.counting -= 1 } }
        })
    }

    /// The most that a request may have, in bytes: the names of 10,000 devices.
    private static let largest = 1 << 20

    var description: DBusInterface {
        DBusInterface(
            FleetProtocol.interface,
            methods: FleetProtocol.Method.allCases.map { method in
                DBusInterface.Method(
                    method.rawValue,
                    in: [.init("request", "a{sv}")],
                    out: [.init("answer", "a{sv}")],
                    maximumBodyBytes: Self.largest
                ) { call in
                    [.fields(try await self.answer(method, call))]
                }
            }
        )
    }

    private func answer(_ method: FleetProtocol.Method, _ call: IncomingCall) async throws -> [String: DBusValue] {
        let user: UInt32
        do {
            user = try await connection.credentials(of: call.sender).userID
        } catch {
            throw failure(.failed, "who asks cannot be told: \(error)")
        }
        guard user == 0 || user == geteuid() else {
            throw failure(.notPermitted, "only root and the controller's own user may do this; run it as one of them")
        }
        let request = call.arguments.first?.fieldsValue ?? [:]
        do throws(FleetRefusal) {
            return switch method {
            case .signOut: try await signOut(request)
            case .getOrder: try await order(request)
            case .getOrders: orders(request)
            case .getDevices: devices(request)
            case .listDevices: try await list(request)
            }
        } catch {
            throw failure(.invalidRequest, error.description)
        }
    }

    private func failure(_ kind: FleetProtocol.Failure, _ text: String) -> MethodFailure {
        MethodFailure(name: kind.name, message: text)
    }

    // MARK: Orders

    private func signOut(_ request: Fields) async throws(FleetRefusal) -> Fields {
        let target: OrderTarget
        if request["all"]?.booleanValue == true {
            target = .all
        } else if let group = request["group"]?.stringValue {
            target = .group(group)
        } else if let names = request["devices"]?.stringsValue, names.count <= FleetProtocol.mostNamed {
            target = .devices(names)
        } else {
            throw FleetRefusal(
                "nobody is named; name devices (\(FleetProtocol.mostNamed) at the most), a group, or all"
            )
        }
        let session = request["session"]?.unsignedValue
        let reason = request["reason"]?.stringValue ?? ""
        let number = try await service.change { state throws(FleetRefusal) in
            let record = try state.order(target, session: session, reason: reason, now: ControllerService.wall)
            return (record, state.highest)
        }
        let isConnected = service.read { state, _ in state.isConnected }
        return ["order": .uint64(number), "isConnected": .boolean(isConnected)]
    }

    private func order(_ request: Fields) async throws(FleetRefusal) -> Fields {
        var wait = 0.0
        if case .double(let seconds)? = request["wait"], seconds.isFinite {
            wait = min(max(seconds, 0), FleetProtocol.longestWait)
        }
        let (known, deadline) = (request["revision"]?.unsignedValue, ControllerService.uptime + wait)
        while known == service.read({ state, _ in state.revision }), ControllerService.uptime < deadline,
            !Task.isCancelled
        {
            try? await Task.sleep(for: ControllerService.pause)
        }
        let wanted = request["order"]?.unsignedValue
        let fields = service.read { state, _ in
            (wanted.map { state.order($0) } ?? state.orders.last).map { Self.fields($0, state) }
        }
        guard let fields else {
            throw FleetRefusal(wanted.map { "there is no order \($0); see “fleet orders”" } ?? "no order was given yet")
        }
        return fields
    }

    private static func fields(_ recorded: RecordedOrder, _ state: ControllerState) -> Fields {
        let standings = state.standings(of: recorded, now: ControllerService.wall)
        var counts: [String: UInt64] = [:]
        for (_, standing) in standings { counts[standing.word, default: 0] += 1 }
        let undone = standings.filter { !$0.standing.isDone }
        let worst = undone.sorted { ($0.standing.rank, $0.name) < ($1.standing.rank, $1.name) }
        return fields(recorded).merging([
            "revision": .uint64(state.revision), "isConnected": .boolean(state.isConnected),
            "total": .uint64(UInt64(standings.count)), "undoneCount": .uint64(UInt64(undone.count)),
            "counts": .fields(counts.mapValues { .uint64($0) }),
            "undone": .array(
                worst.prefix(FleetProtocol.mostDevices).map { name, standing in
                    .fields(fields(name, standing, state.devices[name]))
                },
                of: "a{sv}"
            ),
            "waived": .uint64(
                standings.reduce(0) { sum, entry in
                    if case .clean(let waived) = entry.standing { sum + waived } else { sum }
                }
            ),
        ]) { $1 }
    }

    private static func fields(_ recorded: RecordedOrder) -> Fields {
        var fields: Fields = [
            "order": .uint64(recorded.number), "at": .double(recorded.at), "reason": .string(recorded.order.reason),
            "all": .boolean(recorded.target == .all),
        ]
        if let session = recorded.order.session { fields["session"] = .uint64(session) }
        if case .devices(let names) = recorded.target {
            fields["devices"] = .array(names.sorted().prefix(FleetProtocol.mostDevices).map { .string($0) }, of: "s")
        }
        return fields
    }

    private static func fields(_ name: String, _ standing: Standing, _ device: FleetDevice?) -> Fields {
        var fields: Fields = ["device": .string(name), "state": .string(standing.word)]
        switch standing {
        case .cleaning(let debts, let more), .stuck(let debts, let more):
            fields["owing"] = .array(debts.map { .string("\($0.app) (\($0.progress))") }, of: "s")
            fields["owes"] = .uint64(UInt64(debts.count) + more)
        case .unreachable(let since): fields["since"] = since.map { .double($0) }
        case .refused(let text): fields["detail"] = .string(text)
        case .clean, .nobody, .unknown: break
        }
        if case .unreachable = standing, let at = device?.reportedAt, let limit = device?.report?.contactTimeout {
            // By itself, without the controller.
            fields["signsOutBy"] = .double(at + Double(limit))
        }
        return fields
    }

    private func orders(_ request: Fields) -> Fields {
        let limit = Int(clamping: request["limit"]?.unsignedValue ?? 20)
        let recorded = service.read { state, _ in Array(state.orders.suffix(min(limit, FleetProtocol.mostDevices))) }
        return ["orders": .array(recorded.reversed().map { .fields(Self.fields($0)) }, of: "a{sv}")]
    }

    // MARK: Devices

    private func devices(_ request: Fields) -> Fields {
        let (after, limit) = (request["after"]?.stringValue ?? "", request["limit"]?.unsignedValue ?? 1000)
        return service.read { state, problem in
            let names = state.devices.keys.filter { $0 > after }.sorted()
            let some = names.prefix(min(Int(clamping: limit), FleetProtocol.mostDevices))
            var fields: Fields = [
                "isConnected": .boolean(state.isConnected), "highest": .uint64(state.highest),
                "foreign": .uint64(state.foreignCount), "old": .uint64(state.oldCount),
                "listed": .uint64(UInt64(state.devices.values.count(where: \.isListed))),
                "unlisted": .uint64(UInt64(state.devices.values.count { !$0.isListed })),
                "devices": .array(some.map { .fields(Self.fields($0, state.devices[$0])) }, of: "a{sv}"),
                "more": .boolean(some.count < names.count),
            ]
            if let problem { fields["problem"] = .string(problem) }
            return fields
        }
    }

    private static func fields(_ name: String, _ device: FleetDevice?) -> Fields {
        guard let device else { return ["device": .string(name)] }
        var fields: Fields = [
            "device": .string(name), "isListed": .boolean(device.isListed),
            "groups": .array(device.groups.map { .string($0) }, of: "s"),
        ]
        if let isOnline = device.isOnline { fields["isOnline"] = .boolean(isOnline) }
        if let at = device.reportedAt { fields["reportedAt"] = .double(at) }
        if let offset = device.clockOffset { fields["clockOffset"] = .double(offset) }
        guard let report = device.report else { return fields }
        fields["mode"] = .string(report.mode)
        if let session = report.session { fields["session"] = .uint64(session) }
        fields["owes"] = .uint64(report.rounds.reduce(0) { $0 + $1.owes })
        fields["seenAll"] = .uint64(report.seen.all)
        fields["seenOwn"] = .uint64(report.seen.own)
        fields["problems"] = .array(report.problems.map { .string($0) }, of: "s")
        return fields
    }

    private func list(_ request: Fields) async throws(FleetRefusal) -> Fields {
        guard let names = request["devices"]?.stringsValue, (1...FleetProtocol.mostNamed).contains(names.count) else {
            throw FleetRefusal("no device is named; name 1 to \(FleetProtocol.mostNamed)")
        }
        let groups = request["groups"]?.stringsValue
        try await service.change { state throws(FleetRefusal) in (try state.list(names, groups: groups), ()) }
        return [:]
    }
}
