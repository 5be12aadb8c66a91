import ArgumentParser
import Basics
import CommandParts
import DBus
import Fleet
import FoundationEssentials
import Glibc

@main
struct FleetCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "shared-device-fleet",
        abstract: "Signs out many devices, and shows which of them have done it.",
        discussion:
            "Asks shared-device-controller on its machine. The last five commands set up a fleet, and do not ask it.",
        version: ProjectVersion.line(of: "shared-device-fleet"),
        subcommands: [
            FleetSignOutCommand.self, FleetStatusCommand.self, FleetOrdersCommand.self, FleetDevicesCommand.self,
            FleetDeviceCommand.self, FleetMetricsCommand.self, FleetEnrolCommand.self, FleetAuthorityCommand.self,
            FleetCertifyCommand.self, FleetCertificatesCommand.self, FleetRevokeCommand.self,
        ]
    )
}

struct FleetSignOutCommand: ReportingCommand {
    static let configuration = CommandConfiguration(
        commandName: "sign-out",
        abstract: "Orders devices to sign their users out.",
        discussion: """
            Prints the order's number once it is recorded, then the counts each time they change, then the devices \
            that have not carried out the order, the worst first. With --json it prints {"recorded": NUMBER} in a \
            line, and at the end the whole as one object. The order stays in force until a later order replaces it, \
            also for devices that are off.
            Exit status: 0 each device has reported that the session is over and that each app has deleted its data, \
            was waived, or was stopped and its data deleted in its place; 75 the time is over and some devices have \
            not; 69 the order is recorded, but the MQTT server is out of reach or rejects it, or no controller \
            responds; 65 the controller refuses the order, for example because a device is not listed; 77 not \
            permitted.
            """
    )

    @Flag(help: "All devices.")
    var all = false

    @Option(name: .customLong("device"), help: ArgumentHelp("A device; may be given several times.", valueName: "name"))
    var devices: [String] = []

    @Option(help: ArgumentHelp("The devices of this group, as it is now.", valueName: "name"))
    var group: String?

    @Option(help: ArgumentHelp("Spares sessions newer than this one.", valueName: "number"))
    var session: UInt64?

    @Option(help: ArgumentHelp("The reason, for the devices' logs. Do not name a person.", valueName: "text"))
    var reason: String

    @Option(help: ArgumentHelp("How many seconds to wait for the devices.", valueName: "seconds"))
    var wait: Double = 30

    @Flag(help: "JSON, for programs: a line with the number, and an object at the end.")
    var json = false

    @OptionGroup var controller: FleetOptions

    func validate() throws {
        guard [all, !devices.isEmpty, group != nil].count(where: { $0 }) == 1 else {
            throw ValidationError("name --all, --device or --group, and only one of them")
        }
        guard (0...86400).contains(wait) else { throw ValidationError("--wait needs a number from 0 to 86400") }
    }

    private var request: FleetClient.Fields {
        var request: FleetClient.Fields = ["reason": .string(reason)]
        if all { request["all"] = .boolean(true) }
        if let group { request["group"] = .string(group) }
        if !devices.isEmpty { request["devices"] = .array(devices.map { .string($0) }, of: "s") }
        if let session { request["session"] = .uint64(session) }
        return request
    }

    func execute() throws {
        let client = try controller.connect()
        guard let number = try client.call(.signOut, request)["order"]?.unsignedValue else {
            throw CommandFailure(EX_SOFTWARE, "the controller's response lacks “order”")
        }
        try emit(json ? "{\"recorded\": \(number)}" : "recorded: order \(number)")
        let progress = try client.follow(number, within: wait) { if !json { try emit($0) } }
        if json {
            try emit(Form.json(progress))
        } else if !progress.isDone, !progress.table.isEmpty {
            try emit(progress.table.joined(separator: "\n"))
        }
        if let warning = progress.warning { warn(warning.printable) }
        guard !progress.isDone else { return }
        if let obstacle = progress.obstacle { throw CommandFailure(EX_UNAVAILABLE, obstacle) }
        throw CommandFailure(
            EX_TEMPFAIL,
            "\(progress.undoneCount) of \(progress.total) devices are not done; order \(number) stands, see “fleet status”"
        )
    }
}

extension FleetClient {
    /// Follows an order until all devices are done or the time is over. `changed` receives each new line of counts.
    fileprivate func follow(
        _ number: UInt64,
        within seconds: Double,
        changed: (String) throws -> Void
    ) throws -> OrderProgress {
        let begin = ContinuousClock.now
        let first = try followAll(number, within: min(seconds, Self.timeToAnswer)) { _ in }
        try changed("  " + first.line)
        var shown = first.line
        let left = seconds - begin.duration(to: .now) / .seconds(1)
        guard !first.isDone, left > 0 else { return first }
        return try followAll(number, within: left) { progress in
            guard progress.line != shown else { return }
            try changed("  " + progress.line)
            shown = progress.line
        }
    }

    /// How long devices have before they are first counted, in seconds. An agent reports at most once a second, and a
    /// device counts as unreachable until its report arrives.
    private static var timeToAnswer: Double { 1.5 }
    /// The shortest pause between two requests, in seconds. A fleet that cleans up changes constantly.
    private static var rest: Double { 0.5 }

    /// Calls `changed` with the whole progress after each response.
    fileprivate func followAll(
        _ number: UInt64?,
        within seconds: Double,
        changed: (OrderProgress) throws -> Void
    ) throws -> OrderProgress {
        let deadline = ContinuousClock.now + .seconds(seconds)
        var revision: UInt64?
        while true {
            let asked = ContinuousClock.now
            let left = max(0, asked.duration(to: deadline) / .seconds(1))
            var request: Fields = ["wait": .double(min(left, FleetProtocol.longestWait))]
            if let number { request["order"] = .uint64(number) }
            if let revision { request["revision"] = .uint64(revision) }
            let fields = try call(.getOrder, request)
            revision = fields["revision"]?.unsignedValue
            let progress = OrderProgress(fields)
            try changed(progress)
            // Without a number, the command also follows later orders.
            if number != nil && progress.isDone || left <= 0 { return progress }
            let rest = min(Self.rest, left) - asked.duration(to: .now) / .seconds(1)
            if rest > 0 { usleep(UInt32(rest * 1e6)) }
        }
    }
}

struct FleetStatusCommand: ReportingCommand {
    static let configuration = CommandConfiguration(
        commandName: "status",
        abstract: "Shows how far the devices are with an order.",
        discussion: """
            With --watch it shows each change until all devices have carried out the order. If no order is named, it \
            shows the last order and all later orders, until it is interrupted (Ctrl-C). On a terminal each change \
            replaces what was shown, and as many devices are shown as fit, the worst first. Elsewhere, and with --json \
            (one object in a line), each change follows the last one.
            Exit status: 0 all devices have carried out the order; 75 some have not, also while the MQTT server is out \
            of reach; 65 there is no such order; 69 no controller responds; 77 not permitted.
            """
    )

    @Option(help: ArgumentHelp("The order; otherwise the last one.", valueName: "number"))
    var order: UInt64?

    @Flag(help: "As a JSON object, for programs.")
    var json = false

    @Flag(help: "Shows each change.")
    var watch = false

    @OptionGroup var controller: FleetOptions

    /// - Parameter size: The window, which shows the counts and the worst devices that fit; `nil` shows all.
    private static func text(_ progress: OrderProgress, in size: TerminalScreen.Size? = nil) -> String {
        let time = progress.at.map { " of \(Form.time($0))" } ?? ""
        let reason = progress.reason.isEmpty ? "" : ": \(progress.reason.printable)"
        let head = [Terminal.bold("order \(progress.order)\(time)\(reason)"), progress.line]
        let lines = head + progress.table
        let rows = { (line: String) in Terminal.rows(of: line, columns: size?.columns ?? .max) }
        // The cursor is below the last line.
        guard let size, lines.reduce(0, { $0 + rows($1) }) >= size.rows else { return lines.joined(separator: "\n") }
        var room = size.rows - 2
        let shown = lines.prefix { line in
            room -= rows(line)
            return room >= 0
        }
        // Two lines above the devices, and the table's head.
        let devices = UInt64(max(0, shown.count - head.count - 1))
        let left = progress.undoneCount - min(progress.undoneCount, devices)
        return (shown + ["… and \(left) more"]).joined(separator: "\n")
    }

    private func follow(_ client: FleetClient) throws -> OrderProgress {
        var shown: String?
        let isScreen = !json && isatty(STDOUT_FILENO) == 1
        return try client.followAll(order, within: 1e9) { progress in
            let size = isScreen ? TerminalScreen.currentSize() : nil
            let text = json ? try Form.json(progress, pretty: false) : Self.text(progress, in: size)
            guard text != shown else { return }
            try emit((isScreen ? "\u{1B}[H\u{1B}[J" : "") + text)
            shown = text
        }
    }

    func execute() throws {
        let client = try controller.connect()
        let progress: OrderProgress
        if watch {
            progress = try follow(client)
        } else {
            progress = OrderProgress(try client.call(.getOrder, order.map { ["order": .uint64($0)] } ?? [:]))
            try emit(json ? Form.json(progress) : Self.text(progress))
        }
        if let warning = progress.warning { warn(warning.printable) }
        guard !progress.isDone else { return }
        if let obstacle = progress.obstacle { warn(obstacle) }
        throw ExitCode(EX_TEMPFAIL)
    }
}
