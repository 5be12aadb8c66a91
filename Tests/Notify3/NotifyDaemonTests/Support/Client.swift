import DBusTransport
import NotifyCenterTestKit
import NotifydProtocol
import Synchronization

/// A connection that speaks the protocol of the library, in this process.
final class Client: Sendable {
    let connection: DBusConnection
    private let shared: (report: SharedReport, heard: SharedLines)
    private let lease: MatchRuleLease
    private let token: Observation

    init(_ bus: PrivateBus) throws {
        let connection = try DBusConnection.open(bus.bus)
        self.connection = connection
        lease = try connection.addMatch(NotifydProtocol.tellRule)
        let (report, heard) = (SharedReport(), SharedLines())
        shared = (report, heard)
        token = connection.onSignal { [weak connection] message in
            guard message.interface == NotifydProtocol.interface, let member = message.member,
                let arguments = try? message.arguments()
            else { return }
            if member == NotifydProtocol.Signal.tell.rawValue {
                heard.append(arguments[1].booleanValue == true ? "Tell detailed" : "Tell")
                guard let answer = report.value,
                    let call = try? NotifydProtocol.call(
                        .report,
                        [arguments[0], answer.value],
                        options: [.noReply, .noAutoStart]
                    )
                else { return }
                try? connection?.send(call)
            } else if case .int32(let token) = arguments.first {
                heard.append("\(member) \(token)")
            } else {
                heard.append(member)
            }
        }
    }

    /// Its answer to `Tell`; `nil` means none.
    func answers(_ report: ProcessReport?) { shared.report.set(report) }

    func answers(_ names: [String]) { answers(ProcessReport(names: names.map { NameReport(name: $0) })) }

    /// The signals so far.
    var signals: [String] { shared.heard.lines }

    @discardableResult
    func call(_ method: NotifydProtocol.Method, _ arguments: DBusValue...) async throws -> [DBusValue] {
        try await connection.call(NotifydProtocol.call(method, arguments, options: .noAutoStart))
    }

    /// Without waiting for an answer.
    func send(_ method: NotifydProtocol.Method, _ arguments: DBusValue...) throws {
        try connection.send(NotifydProtocol.call(method, arguments, options: [.noReply, .noAutoStart]))
    }

    @discardableResult
    func enter(_ names: String...) async throws -> [DBusValue] { try await call(.enter, .names(names)) }

    func leave(_ names: String...) async throws { try await call(.leave, .names(names)) }

    func set(_ name: String, _ value: UInt64, at time: UInt64 = 1) async throws {
        try await call(.setState, .string(name), .uint64(value), .uint64(time))
    }

    func state(_ name: String) async throws -> UInt64? {
        try await call(.getState, .string(name)).first?.unsignedValue
    }

    func monitor(_ token: Int32, _ path: String, flags: UInt32 = 0, name: String = "n") async throws {
        // When many buses and notifyds come and go, the kernel frees their inotify instances with a delay.
        let deadline = ContinuousClock.now + .seconds(30)
        while true {
            do throws(DBusError) {
                _ = try await connection.call(
                    NotifydProtocol.call(.monitor, [.int32(token), .string(name), .string(path), .uint32(flags)])
                )
                return
            } catch {
                guard error.message.contains("max_user_instances"), .now < deadline else { throw error }
                try await Task.sleep(for: .milliseconds(50))
            }
        }
    }

    func list() async throws -> (names: [NameListing], processes: [ProcessListing]) {
        let answer = try await call(.list)
        guard answer.count == 2, case .array(let names, "a{sv}") = answer[0],
            case .array(let processes, "a{sv}") = answer[1]
        else { throw NotifydProtocol.FieldError("list") }
        return (try names.map { try NameListing($0) }, try processes.map { try ProcessListing($0) })
    }

    /// The name of the refusal; `nil` if there is none.
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
