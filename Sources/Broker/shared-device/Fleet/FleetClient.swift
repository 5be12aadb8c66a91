import ArgumentParser
import DBusTransport
import Fleet
import FoundationEssentials
import Glibc

/// Which controller a command asks.
struct FleetOptions: ParsableArguments {
    @Option(
        name: .customLong("bus"),
        help: ArgumentHelp(
            "The bus that the controller serves: session, system, or an address.",
            discussion: "Otherwise $\(Bus.environmentVariable); else the system bus.",
            valueName: "bus"
        )
    )
    var name: String?

    func connect() throws -> FleetClient {
        let environment = ProcessInfo.processInfo.environment[Bus.environmentVariable]
        let bus = Bus(name: name ?? environment.flatMap { $0.isEmpty ? nil : $0 } ?? "system")
        do {
            return FleetClient(connection: try DBusConnection.open(bus))
        } catch {
            throw CommandFailure(status: EX_UNAVAILABLE, description: "\(error)")
        }
    }
}

/// The fleet's controller, as the command asks it.
struct FleetClient {
    typealias Fields = [String: DBusValue]

    let connection: DBusConnection

    /// Asks, and waits for the answer.
    ///
    /// - Throws: ``CommandFailure`` with the exit status that says which kind of failure it is.
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
            throw CommandFailure(
                status: status,
                description: error.message + remedy
            )
        }
    }
}

/// How far the devices of an order are. The properties' names are the JSON's keys, which programs rely on.
struct OrderProgress: Encodable, Equatable {
    struct Device: Encodable, Equatable {
        let device: String
        /// `unknown`, `refused`, `unreachable`, `stuck` or `cleaning`.
        let state: String
        /// How many apps owe, and some of them.
        let owes: UInt64?
        let owing: [String]?
        /// The last report.
        let since: Date?
        /// When the session of its last report ends by itself at the latest, if the device runs.
        let signsOutBy: Date?
        let detail: String?
    }

    let order: UInt64
    let at: Date?
    let reason: String
    let session: UInt64?
    /// Whether the controller reaches the MQTT server.
    let connected: Bool
    /// Why the server does not take the order.
    let refusal: String?
    /// Which certificates of the fleet end soon.
    let warning: String?
    let total: UInt64
    /// How many devices there are in each state.
    let counts: [String: UInt64]
    /// How many apps an administrator has let off.
    let waived: UInt64
    /// How many apps devices have stopped, with their data deleted in their place.
    let enforced: UInt64
    let undoneCount: UInt64
    /// Those that are not done, the worst first; 1000 at the most.
    let undone: [Device]

    /// - Parameter fields: an answer of `GetOrder`.
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
        // Without the number nobody counts as done.
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

    /// Why devices do not hear of the order; `nil` where nothing is known of that.
    var obstacle: String? {
        guard connected else {
            return "order \(order) is recorded, but the MQTT server is out of reach; devices get it when it is back"
        }
        return refusal.map {
            "order \(order) is recorded, but the MQTT server does not take it, and gets it again until it does: \(Terminal.printable($0))"
        }
    }

    /// The counts in one line, the worst first.
    var line: String {
        let parts = Standing.words.compactMap { word in counts[word].map { "\($0) \(word)" } }
        let apps = [(waived, "waived"), (enforced, "enforced")].filter { $0.0 > 0 }
        // Not by a receipt: whoever looks at the line alone is to know it.
        let without = apps.isEmpty ? "" : " (apps: \(apps.map { "\($0.0) \($0.1)" }.joined(separator: ", ")))"
        return parts.isEmpty ? "no device of the order is listed" : parts.joined(separator: ", ") + without
    }

    /// Who is not done.
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
    /// Seconds that a whole number can hold: the answer comes from another process.
    var seconds: Double? {
        guard case .double(let seconds)? = self, seconds.isFinite, abs(seconds) < 1e12 else { return nil }
        return seconds
    }

    /// Seconds since 1970.
    var date: Date? { seconds.flatMap { abs($0) < 1e11 ? Date(timeIntervalSince1970: $0) : nil } }
}
