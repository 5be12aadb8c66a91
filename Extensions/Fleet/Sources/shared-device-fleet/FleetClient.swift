import ArgumentParser
import Basics
import CommandParts
import DBus
import Fleet
import FoundationEssentials
import Glibc

struct FleetOptions: ParsableArguments {
    @Option(
        name: .customLong("bus"),
        help: ArgumentHelp(
            "The bus that the controller serves: session, system, or an address.",
            discussion: "By default $\(Bus.environmentVariable); else the system bus.",
            valueName: "bus"
        )
    )
    var name: String?

    func connect() throws -> FleetClient {
        let bus = Bus(name: name ?? ProcessEnvironment.value(Bus.environmentVariable) ?? "system")
        do {
            return FleetClient(connection: try DBusConnection.open(bus))
        } catch {
            throw CommandFailure(EX_UNAVAILABLE, "\(error)")
        }
    }
}

struct FleetClient {
    typealias Fields = [String: DBusValue]

    let connection: DBusConnection

    /// - Throws: ``CommandFailure`` whose exit status tells the kind of failure.
    func call(_ method: FleetProtocol.Method, _ request: Fields = [:]) throws(CommandFailure) -> Fields {
        do throws(DBusError) {
            let message = try DBusMessage.methodCall(
                destination: FleetProtocol.busName,
                path: FleetProtocol.path,
                interface: FleetProtocol.interface,
                member: method.rawValue,
                arguments: [.fields(request)]
            )
            let patience = Duration.seconds(FleetProtocol.longestWait + 30)
            return try connection.callAndWait(message, timeout: patience).first?.fieldsValue ?? [:]
        } catch {
            let status: CInt =
                switch error.name {
                case FleetProtocol.Failure.notPermitted.name, "org.freedesktop.DBus.Error.AccessDenied": EX_NOPERM
                case FleetProtocol.Failure.invalidRequest.name: EX_DATAERR
                case FleetProtocol.Failure.failed.name: EX_SOFTWARE
                case "org.freedesktop.DBus.Error.LimitsExceeded": EX_TEMPFAIL
                default: EX_UNAVAILABLE
                }
            let remedy = status == EX_UNAVAILABLE ? "; see that shared-device-controller runs, and name its bus" : ""
            throw CommandFailure(status, error.message + remedy)
        }
    }
}

/// The progress of an order. The properties' names are the JSON's keys, which programs rely on.
struct OrderProgress: Encodable, Equatable {
    struct Device: Encodable, Equatable {
        let device: String
        /// `unknown`, `refused`, `unreachable`, `stuck` or `cleaning`.
        let state: String
        /// The number of apps that owe a cleanup, and some of them.
        let owes: UInt64?
        let owing: [String]?
        /// The time of the last report.
        let since: Date?
        /// The latest time at which the reported session ends by itself, if the device runs.
        let signsOutBy: Date?
        let detail: String?
    }

    let order: UInt64
    let at: Date?
    let reason: String
    let session: UInt64?
    /// Whether the controller is connected to the MQTT server.
    let connected: Bool
    /// Why the server does not accept the order.
    let refusal: String?
    /// The fleet's certificates that expire soon.
    let warning: String?
    let total: UInt64
    /// The number of devices in each state.
    let counts: [String: UInt64]
    /// The number of apps that an administrator has waived.
    let waived: UInt64
    /// The number of apps that devices have stopped and whose data they deleted.
    let enforced: UInt64
    let undoneCount: UInt64
    /// Up to 1000 devices that are not done, the worst first.
    let undone: [Device]

    /// - Parameter fields: A response to `GetOrder`.
    init(_ fields: FleetClient.Fields) {
        order = fields["order"]?.unsignedValue ?? 0
        at = fields["at"].date
        reason = fields["reason"]?.stringValue ?? ""
        session = fields["session"]?.unsignedValue
        connected = fields["isConnected"]?.booleanValue ?? false
        refusal = fields["refusal"]?.stringValue
        warning = fields["warning"]?.stringValue
        total = fields["total"]?.unsignedValue ?? 0
        counts = (fields["counts"]?.fieldsValue ?? [:]).compactMapValues(\.unsignedValue)
        waived = fields["waived"]?.unsignedValue ?? 0
        enforced = fields["enforced"]?.unsignedValue ?? 0
        // Without the number, the order does not count as done.
        undoneCount = fields["undoneCount"]?.unsignedValue ?? .max
        undone = (fields["undone"]?.elementsValue ?? []).compactMap(\.fieldsValue).map { fields in
            Device(
                device: fields["device"]?.stringValue ?? "",
                state: fields["state"]?.stringValue ?? "",
                owes: fields["owes"]?.unsignedValue,
                owing: fields["owing"]?.stringsValue,
                since: fields["since"].date,
                signsOutBy: fields["signsOutBy"].date,
                detail: fields["detail"]?.stringValue
            )
        }
    }

    var isDone: Bool { undoneCount == 0 }

    /// Why devices do not receive the order; `nil` if no reason is known.
    var obstacle: String? {
        guard connected else {
            return "order \(order) is recorded, but the MQTT server is out of reach; devices get it when it is back"
        }
        return refusal.map {
            "order \(order) is recorded, but the MQTT server rejects it; the controller repeats it until the server accepts it: \($0.printable)"
        }
    }

    /// The counts in one line, the worst first.
    var line: String {
        let parts = Standing.words.compactMap { word in counts[word].map { "\($0) \(word)" } }
        let apps = [(waived, "waived"), (enforced, "enforced")].filter { $0.0 > 0 }
        // Apps without a receipt are mentioned, for readers of this line alone.
        let without = apps.isEmpty ? "" : " (apps: \(apps.map { "\($0.0) \($0.1)" }.joined(separator: ", ")))"
        return parts.isEmpty ? "no device of the order is listed" : parts.joined(separator: ", ") + without
    }

    /// The devices that are not done.
    var table: [String] {
        var table = Table("DEVICE", "STATE", "DETAIL")
        for device in undone {
            var details: [String] = []
            if let owing = device.owing, let owes = device.owes {
                let more = owes - min(owes, UInt64(owing.count))
                details.append(owing.joined(separator: ", ") + (more > 0 ? ", \(more) more" : ""))
            }
            if let since = device.since { details.append("since \(Form.time(since))") }
            if let time = device.signsOutBy {
                details.append("if it runs, its session ends by itself by \(Form.time(time))")
            }
            if let detail = device.detail { details.append(detail) }
            let colour: Terminal.Colour = device.state == "cleaning" ? .yellow : .red
            table.add([device.device, device.state, details.joined(separator: "; ")], colour)
        }
        let left = undoneCount - min(undoneCount, UInt64(undone.count))
        return (undone.isEmpty ? [] : table.lines) + (left > 0 ? ["… and \(left) more"] : [])
    }
}

extension DBusValue? {
    /// Finite seconds within the range of a whole number, because the response comes from another process.
    var seconds: Double? {
        guard case .double(let seconds)? = self, seconds.isFinite, abs(seconds) < 1e12 else { return nil }
        return seconds
    }

    var date: Date? { seconds.flatMap { abs($0) < 1e11 ? Date(timeIntervalSince1970: $0) : nil } }
}
