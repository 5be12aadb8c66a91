import Basics
import DBus
import NotifyCenter
import NotifyCenterTestKit
import Synchronization
import Testing

/// A connection of this process that speaks the library's protocol with notifyd.
final class Client: Sendable {
    let connection: DBusConnection
    private let reported = SharedReport()
    private let heard = SharedLines()
    private let lease: MatchRuleLease
    private let token: Observation

    init(_ bus: PrivateBus) throws {
        let connection = try DBusConnection.open(bus.bus)
        self.connection = connection
        lease = try connection.addMatch(NotifydProtocol.ownerRule)
        token = connection.onSignal { [weak connection, reported, heard] message in
            func answer(_ round: UInt64) {
                guard let answer = reported.value,
                    let call = try? NotifydProtocol.call(
                        .report,
                        [.uint64(round)] + answer.values,
                        options: [.noReply, .noAutoStart]
                    )
                else { return }
                try? connection?.send(call)
            }
            guard let member = message.member, let arguments = try? message.arguments() else { return }
            if message.isBusSignal("NameOwnerChanged") {
                guard arguments.first?.stringValue == NotifydProtocol.busName,
                    arguments.last?.stringValue != ""
                else { return }
                heard.append("came")
                answer(0)
            } else if message.interface == NotifydProtocol.interface {
                heard.append(member)
                if member == NotifydProtocol.Signal.tell.rawValue { answer(arguments[0].unsignedValue ?? 0) }
            }
        }
    }

    /// Queues for the bus name that lists processes with registrations.
    func queues() async throws {
        _ = try await connection.call(
            NotifydProtocol.busCall("RequestName", [.string(NotifydProtocol.clientsBusName), .uint32(0)])
        )
    }

    /// Sets the report for a request, or for a new notifyd; `nil` for no report.
    func answers(_ report: ProcessReport?) { reported.set(report) }

    func answers(_ names: [String]) { answers(ProcessReport(names: names.map { NameReport(name: $0) })) }

    /// The signals received so far.
    var signals: [String] { heard.lines }

    @discardableResult
    func call(_ method: NotifydProtocol.Method, _ arguments: DBusValue...) async throws -> [DBusValue] {
        try await connection.call(NotifydProtocol.call(method, arguments, options: .noAutoStart))
    }

    /// Sends a call without waiting for a reply.
    func send(_ method: NotifydProtocol.Method, _ arguments: DBusValue...) throws {
        try connection.send(NotifydProtocol.call(method, arguments, options: [.noReply, .noAutoStart]))
    }

    @discardableResult
    func enter(_ names: String...) async throws -> [DBusValue] { try await call(.enter, .names(names)) }

    func set(_ name: String, _ value: UInt64, at time: UInt64 = 1) async throws {
        try await call(.setState, .string(name), .uint64(value), .uint64(time))
    }

    func state(_ name: String) async throws -> UInt64? { try await call(.getState, .string(name)).first?.unsignedValue }

    func status() async throws -> String { try await call(.status).first?.stringValue ?? "" }

    /// The number of dropped posts.
    func dropped() async throws -> Int { try await status().firstMatch(of: /dropped (\d+)/).flatMap { Int($0.1) } ?? 0 }

    func list() async throws -> (names: [NameListing], processes: [ProcessListing]) {
        var (names, processes, cursor) = ([NameListing](), [ProcessListing](), UInt64(0))
        repeat {
            let answer = try await call(.list, .uint64(cursor))
            let page = try #require(ListPage(answer))
            names += page.names
            processes += page.processes
            cursor = page.cursor
        } while cursor != 0
        return (names.sorted { $0.name < $1.name }, processes)
    }

    func report(_ report: ProcessReport) async throws {
        _ = try await connection.call(
            NotifydProtocol.call(.report, [.uint64(0)] + report.values, options: .noAutoStart)
        )
    }

    /// Returns the name of the refusal; `nil` if there is none.
    func refusal(_ body: () async throws -> Void) async -> String? {
        do {
            try await body()
            return nil
        } catch {
            let error = error as? DBusError
            return error.flatMap(NotifydProtocol.refusal)?.rawValue ?? error?.name ?? "none"
        }
    }
}

extension ChildProcess {
    /// Starts a process that calls notifyd as ``answer(_:)`` says; see `runNotifydClient`.
    static func notifydClient(on bus: PrivateBus, by launcher: [String] = []) async throws -> ChildProcess {
        let command = launcher + [built("notify-probe"), "notifyd"]
        let process = try ChildProcess(command[0], Array(command.dropFirst()), environment: bus.environment)
        try await process.line { $0.hasPrefix("ready") }
        return process
    }

    /// Makes the process call notifyd, and returns the reply.
    func answer(_ call: String) async throws -> String {
        func answers() -> [String] { lines.filter { $0.hasPrefix("ok") || $0.hasPrefix("refused") } }
        let before = answers().count
        try write("call \(call)")
        try await eventually("a response to \(call)") { answers().count > before }
        return answers()[before]
    }
}

extension DBusValue {
    static func names(_ names: [String]) -> DBusValue { .array(names.map { .string($0) }, of: "s") }
}

final class SharedReport: Sendable {
    private let report = Locked<ProcessReport?>(ProcessReport())
    var value: ProcessReport? { report.withLock { $0 } }
    func set(_ value: ProcessReport?) { report.withLock { $0 = value } }
}

final class SharedLines: Sendable {
    private let state = Locked<[String]>([])
    var lines: [String] { state.withLock { $0 } }
    func append(_ line: String) { state.withLock { $0.append(line) } }
}
