import DBusTransport
import Fleet
import Glibc
import StrictJSON
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
        case .getOrder, .getOrders, .getDevices, .getDevice: isWriting = false
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
            case .getDevices: await devices(request)
            case .getDevice: try device(request)
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
        await waitForChange(after: request["revision"]?.unsignedValue, request)
        let wanted = request["order"]?.unsignedValue
        let fields = service.read { state, _ in
            (wanted.map { state.order($0) } ?? state.orders.last).map { Self.fields($0, state) }
        }
        guard let fields else {
            throw FleetRefusal(wanted.map { "there is no order \($0); see “fleet orders”" } ?? "no order was given yet")
        }
        return fields
    }

    /// Waits for as long as the request says at the most.
    private func waitForChange(after known: UInt64?, _ request: Fields) async {
        guard let known, case .double(let seconds)? = request["wait"], seconds.isFinite else { return }
        let deadline = ControllerService.uptime + min(max(seconds, 0), FleetProtocol.longestWait)
        while known == service.read({ state, _ in state.revision }), ControllerService.uptime < deadline,
            !Task.isCancelled
        {
            try? await Task.sleep(for: ControllerService.pause)
        }
    }

    private static func fields(_ recorded: RecordedOrder, _ state: ControllerState) -> Fields {
        let progress = state.progress(of: recorded, now: ControllerService.wall, atMost: FleetProtocol.mostDevices)
        let counts = zip(Standing.words, progress.counts).filter { $0.1 > 0 }
        return fields(recorded).merging([
            "revision": .uint64(state.revision), "isConnected": .boolean(state.isConnected),
            "total": .uint64(progress.counts.reduce(0, +)), "undoneCount": .uint64(progress.undoneCount),
            "counts": .fields(Dictionary(uniqueKeysWithValues: counts.map { ($0.0, .uint64($0.1)) })),
            "undone": .array(
                progress.worst.map { .fields(fields($0.name, $0.standing, state.devices[$0.name])) },
                of: "a{sv}"
            ),
            "waived": .uint64(progress.waived),
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

    private func devices(_ request: Fields) async -> Fields {
        let (after, limit) = (request["after"]?.stringValue, request["limit"]?.unsignedValue ?? 1000)
        let most = min(Int(clamping: limit), FleetProtocol.mostDevices)
        await waitForChange(after: request["changedAfter"]?.unsignedValue, request)
        return service.read { state, problem in
            // A revision that is still to come is another controller's, and one from before a device was forgotten says nothing of that.
            let known = request["changedAfter"]?.unsignedValue.flatMap { $0 > state.revision ? nil : $0 }
            let since = known.flatMap { $0 < state.forgottenAt ? nil : $0 } ?? 0
            let recorded = request["order"]?.unsignedValue.flatMap(state.order)
            var some: [String] = []
            var hasMore = false
            for name in state.names[(after.map(state.place(after:)) ?? 0)...] {
                if since > 0, state.devices[name]?.changedAt ?? 0 <= since { continue }
                hasMore = some.count == most
                if hasMore { break }
                some.append(name)
            }
            var fields: Fields = [
                "revision": .uint64(state.revision), "isWhole": .boolean(since == 0),
                "time": .double(ControllerService.wall), "isConnected": .boolean(state.isConnected),
                "highest": .uint64(state.highest), "foreign": .uint64(state.foreignCount),
                "old": .uint64(state.oldCount),
                "listed": .uint64(UInt64(state.listedCount)),
                "unlisted": .uint64(UInt64(state.devices.count - state.listedCount)),
                "devices": .array(some.map { .fields(Self.fields($0, state, recorded)) }, of: "a{sv}"),
                "more": .boolean(hasMore),
            ]
            if let problem { fields["problem"] = .string(problem) }
            return fields
        }
    }

    private func device(_ request: Fields) throws(FleetRefusal) -> Fields {
        guard let name = request["device"]?.stringValue else {
            throw FleetRefusal("no device is named; name one in “device”")
        }
        let fields: Fields? = service.read { state, _ in
            guard let device = state.devices[name] else { return nil }
            var fields = Self.fields(name, state, request["order"]?.unsignedValue.flatMap(state.order))
            let offset = device.clockOffset ?? 0
            let rounds = (device.report?.rounds ?? []).map { DBusValue.fields(Self.fields($0, clockOffset: offset)) }
            fields["rounds"] = .array(rounds, of: "a{sv}")
            fields["time"] = .double(ControllerService.wall)
            fields["revision"] = .uint64(state.revision)
            return fields
        }
        guard let fields else { throw FleetRefusal("\(name.quoted) is no device of this fleet; see “fleet devices”") }
        return fields
    }

    /// - Parameter clockOffset: by how many seconds the device's clock goes before the controller's.
    private static func fields(_ round: DeviceReport.Round, clockOffset: Double) -> Fields {
        let apps = round.steps.map { step -> DBusValue in
            var fields: Fields = [
                "identifier": .string(step.app), "progress": .string(step.progress),
                // The report does not say that a process is missing.
                "isRunning": .boolean(true),
            ]
            for (key, time) in [("toldAfter", step.told), ("begunAfter", step.begun), ("finishedAfter", step.finished)]
            {
                if let time { fields[key] = .double(Double(time) / 1000) }
            }
            return .fields(fields)
        }
        let total = round.finished + round.waived + round.owes
        var fields: Fields = [
            "session": .uint64(round.session), "outcome": .string(round.owes == 0 ? "complete" : "open"),
            "apps": .array(apps, of: "a{sv}"), "more": .uint64(total - min(total, UInt64(apps.count))),
        ]
        if let ended = round.ended { fields["endedAt"] = .double(ended - clockOffset) }
        return fields
    }

    /// What is known of the device, and how far it is with the order, if that is for it.
    private static func fields(_ name: String, _ state: ControllerState, _ recorded: RecordedOrder?) -> Fields {
        let device = state.devices[name]
        guard let device, let recorded, recorded.isFor(name, device) else { return fields(name, device) }
        let standing = device.standing(
            recorded.number,
            recorded.scope,
            highest: state.highest,
            now: ControllerService.wall
        )
        return fields(name, device).merging(fields(name, standing, device)) { $1 }
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
