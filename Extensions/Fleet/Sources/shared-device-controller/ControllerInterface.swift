import Basics
import DBus
import DBusService
import Fleet
import Glibc
import Synchronization

/// The controller on the bus, for root and the controller's own user.
final class ControllerInterface: Sendable {
    private typealias Fields = [String: DBusValue]

    let service: ControllerService
    let connection: DBusConnection
    private let answers: ControllerAnswers

    /// The calls in flight by connection, without connections that have none.
    private let underWay = Locked<[String: UnderWay]>([:])

    /// The calls in flight of one connection: calls that write to the disk, and calls that count all devices.
    private struct UnderWay {
        var writing = 0
        var counting = 0
    }

    init(service: ControllerService, connection: DBusConnection) {
        self.service = service
        self.connection = connection
        answers = ControllerAnswers(service: service)
    }

    /// The limits of callers: a faulty script must not delay orders.
    static var limits: CallLimits {
        var limits = CallLimits()
        limits.callsOfSender = 32
        limits.calls = 256
        return limits
    }

    /// The most orders and list changes of one connection that wait for the disk, and its most open requests about
    /// orders. Low, so that a script in an endless loop delays other callers by only a few writes per connection.
    private static let most = (writing: 2, counting: 16)
    /// The most open requests about orders in all, because each change completes every one of them.
    private static let mostCounting = 64

    /// Decides on a call before its body is read.
    func admit(_ call: CallHeader) -> CallAdmission {
        let isWriting: Bool
        switch FleetProtocol.Method(rawValue: call.member) {
        case .signOut, .listDevices: isWriting = true
        case .getOrder, .getOrders, .getDevices, .getDevice: isWriting = false
        case nil: return .take()
        }
        let hasRoom = underWay.withLock { underWay in
            var own = underWay[call.sender] ?? UnderWay()
            if isWriting {
                guard own.writing < Self.most.writing else { return false }
                own.writing += 1
            } else {
                let all = underWay.values.reduce(0) { $0 + $1.counting }
                guard own.counting < Self.most.counting, all < Self.mostCounting else { return false }
                own.counting += 1
            }
            underWay[call.sender] = own
            return true
        }
        guard hasRoom else {
            return .refuse(
                MethodFailure(
                    name: "org.freedesktop.DBus.Error.LimitsExceeded",
                    message:
                        "too many requests are in flight; wait for a response, and name many devices in one request"
                )
            )
        }
        return .take(ended: { [self] in
            underWay.withLock { underWay in
                guard var own = underWay[call.sender] else { return }
                if isWriting { own.writing -= 1 } else { own.counting -= 1 }
                underWay[call.sender] = own.writing + own.counting > 0 ? own : nil
            }
        })
    }

    /// The largest request, in bytes: the names of 10,000 devices.
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
                ) { call in [.fields(try await self.answer(method, call))] }
            }
        )
    }

    private func answer(_ method: FleetProtocol.Method, _ call: IncomingCall) async throws -> [String: DBusValue] {
        let user: UInt32
        do {
            user = try await connection.credentials(of: call.sender).userID
        } catch {
            throw failure(.failed, "the caller's user cannot be determined: \(error)")
        }
        guard user == 0 || user == geteuid() else {
            throw failure(.notPermitted, "only root and the controller's own user may do this; run it as one of them")
        }
        let request = call.arguments.first?.fieldsValue ?? [:]
        do throws(FleetRefusal) {
            return switch method {
            case .signOut: try await signOut(request)
            case .getOrder: try await answers.order(request)
            case .getOrders: await answers.orders(request)
            case .getDevices: await answers.devices(request)
            case .getDevice: try answers.device(request)
            case .listDevices: try await list(request)
            }
        } catch {
            throw failure(.invalidRequest, error.description)
        }
    }

    private func failure(_ kind: FleetProtocol.Failure, _ text: String) -> MethodFailure {
        MethodFailure(name: kind.name, message: text)
    }

    // MARK: Changes

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
                "the order names no device; name devices (\(FleetProtocol.mostNamed) at the most), a group, or all"
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

    private func list(_ request: Fields) async throws(FleetRefusal) -> Fields {
        guard let names = request["devices"]?.stringsValue, (1...FleetProtocol.mostNamed).contains(names.count) else {
            throw FleetRefusal("no device is named; name 1 to \(FleetProtocol.mostNamed)")
        }
        let groups = request["groups"]?.stringsValue
        try await service.change { state throws(FleetRefusal) in (try state.list(names, groups: groups), ()) }
        return [:]
    }
}
