import ArgumentParser
import Basics
import CommandParts
import DBus
import Fleet
import FoundationEssentials

struct FleetOrdersCommand: ReportingCommand {
    static let configuration = CommandConfiguration(
        commandName: "orders",
        abstract: "Lists the last orders, the newest first."
    )

    @Flag(help: "As a JSON array, for programs.")
    var json = false

    @OptionGroup var controller: FleetOptions

    private struct Order: Encodable {
        let order: UInt64
        let at: Date?
        let all: Bool
        /// The number of recipients, and the first 1000 of the devices that the order still names.
        let count: UInt64?
        let devices: [String]?
        let session: UInt64?
        let reason: String
    }

    func execute() throws {
        let answer = try controller.connect().call(.getOrders)
        let orders = (answer["orders"]?.elementsValue ?? []).compactMap(\.fieldsValue).map { fields in
            Order(
                order: fields["order"]?.unsignedValue ?? 0,
                at: fields["at"].date,
                all: fields["all"]?.booleanValue ?? false,
                count: fields["count"]?.unsignedValue,
                devices: fields["devices"]?.stringsValue,
                session: fields["session"]?.unsignedValue,
                reason: fields["reason"]?.stringValue ?? ""
            )
        }
        if json { return try emit(Form.json(orders)) }
        var table = Table("ORDER", "GIVEN", "DEVICES", "REASON")
        for order in orders {
            let devices = order.all ? "all" : order.count.map { "\($0)" } ?? "-"
            table.add(["\(order.order)", order.at.map(Form.time) ?? "-", devices, order.reason])
        }
        try emit(table.lines.joined(separator: "\n"))
    }
}

struct FleetDevicesCommand: ReportingCommand {
    static let configuration = CommandConfiguration(
        commandName: "devices",
        abstract: "Lists the devices, with what they last reported."
    )

    @Flag(help: "As a JSON array, for programs.")
    var json = false

    @OptionGroup var controller: FleetOptions

    private struct Device: Encodable {
        let device: String
        /// Whether an administrator has listed the device. Unlisted devices that report count for no order.
        let listed: Bool
        let groups: [String]
        /// Whether the MQTT server says that the device is connected; `nil` if the controller is not connected.
        var online: Bool?
        let reportedAt: Date?
        let mode: String?
        let session: UInt64?
        /// Also `nil` if the device's broker does not respond: its cleanups are then unknown.
        let owes: UInt64?
        let clockOffset: Double?
        let certificateEnd: Date?
        let problems: [String]

        init(_ fields: FleetClient.Fields) {
            device = fields["device"]?.stringValue ?? ""
            listed = fields["isListed"]?.booleanValue ?? false
            groups = fields["groups"]?.stringsValue ?? []
            online = fields["isOnline"]?.booleanValue
            reportedAt = fields["reportedAt"].date
            mode = fields["mode"]?.stringValue
            session = fields["session"]?.unsignedValue
            owes = mode == DeviceReport.unknownMode ? nil : fields["owes"]?.unsignedValue
            clockOffset = fields["clockOffset"].seconds
            certificateEnd = fields["certificateEnd"].date
            problems = fields["problems"]?.stringsValue ?? []
        }

        /// The session. For a device that is not known to be online, it is as of the last report.
        private var signedIn: String {
            guard let mode else { return "-" }
            if mode == DeviceReport.unknownMode { return "unknown" }
            return (session.map { "session \($0)" } ?? "no account") + (online == true ? "" : " at the last report")
        }

        var row: [String] {
            let notes =
                (listed ? [] : ["not listed"])
                + (clockOffset.map { ["its clock is off by \(Int($0.rounded())) s"] } ?? []) + problems
            return [
                device, online.map { $0 ? "online" : "away" } ?? "unknown", signedIn, owes.map { "\($0)" } ?? "-",
                reportedAt.map(Form.time) ?? "never", groups.joined(separator: " "), notes.joined(separator: "; "),
            ]
        }
    }

    func execute() throws {
        let client = try controller.connect()
        var devices: [Device] = []
        while true {
            var request: FleetClient.Fields = [:]
            if let last = devices.last { request["after"] = .string(last.device) }
            let answer = try client.call(.getDevices, request)
            let some = (answer["devices"]?.elementsValue ?? []).compactMap(\.fieldsValue).map(Device.init)
            devices += some
            guard answer["more"]?.booleanValue == true, !some.isEmpty else {
                if answer["isConnected"]?.booleanValue != true {
                    warn("the controller does not reach the MQTT server")
                    // The online states that the server sent before may be out of date.
                    for index in devices.indices { devices[index].online = nil }
                }
                for problem in ["problem", "refusal", "warning"].compactMap({ answer[$0]?.stringValue }) {
                    warn(problem.printable)
                }
                break
            }
        }
        if json { return try emit(Form.json(devices)) }
        var table = Table("DEVICE", "NETWORK", "SIGNED IN", "OWES", "REPORTED", "GROUPS", "NOTES")
        for device in devices { table.add(device.row, device.online == true ? nil : .yellow) }
        try emit(table.lines.joined(separator: "\n"))
    }
}

struct FleetDeviceCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "device",
        abstract: "Lists a device, or takes it off the list.",
        subcommands: [Add.self, Remove.self]
    )

    struct Add: ReportingCommand {
        static let configuration = CommandConfiguration(
            abstract: "Lists devices: from then on orders for all wait for them."
        )

        @Argument(help: "The names in the devices' certificates.")
        var names: [String]

        @Option(
            name: .customLong("group"),
            help: ArgumentHelp("A group; may be given several times.", valueName: "name")
        )
        var groups: [String] = []

        @OptionGroup var controller: FleetOptions

        func execute() throws { try controller.connect().list(names, groups: groups) }
    }

    struct Remove: ReportingCommand {
        static let configuration = CommandConfiguration(
            abstract: "Takes devices off the list, and forgets their reports. Revoke their certificates, too."
        )

        @Argument(help: "The names of the devices.")
        var names: [String]

        @OptionGroup var controller: FleetOptions

        func execute() throws { try controller.connect().list(names, groups: nil) }
    }
}

extension FleetClient {
    /// Lists these devices, or unlists them without groups, in requests of at most `FleetProtocol.mostNamed` devices.
    func list(_ names: [String], groups: [String]?) throws(CommandFailure) {
        var request: Fields = [:]
        if let groups { request["groups"] = .array(groups.map { .string($0) }, of: "s") }
        for start in stride(from: 0, to: names.count, by: FleetProtocol.mostNamed) {
            let some = names[start..<min(start + FleetProtocol.mostNamed, names.count)].map(DBusValue.string)
            _ = try call(.listDevices, request.merging(["devices": .array(some, of: "s")]) { $1 })
        }
    }
}
