import DBus
import NotifyCenter
@_spi(Extensions) import NotifyCenterTestKit
import Testing

@Suite struct HostileCallerTests {
    private let daemon: Daemon
    private let client: Client

    init() async throws {
        daemon = try await Daemon()
        client = try Client(daemon.bus)
    }

    private func stillServes() async throws -> Bool {
        let other = try Client(daemon.bus)
        try await other.set("alive", 1)
        return try await other.state("alive") == 1
    }

    // notifyd refuses an oversized report before it copies it, and takes a flood in order.
    @Test func malformedAndOversizedCallsAreRefusedAndNotifydServesOn() async throws {
        let row = DBusValue.structure([
            .string(""), .boolean(false), .uint64(0), .uint64(0), .array([], of: "(isut)"), .array([], of: "(isu)"),
        ])
        let rows = DBusValue.array(Array(repeating: row, count: 200_000), of: "(sbtta(isut)a(isu))")
        let oversized = await client.refusal { try await client.call(.report, .uint64(0), .uint32(0), rows) }
        #expect(oversized == "LimitsExceeded")
        // The limit covers the message, which libdbus may hold twice while it grows, and the names up to their limit.
        #expect(try daemon.process.memory().peak < 160 << 20)
        #expect(try await stillServes())
        let report = DBusValue.fields(["suspensions": .uint32(0)])
        let calls: [(NotifydProtocol.Method, [DBusValue])] = [
            (.enter, [.string("a")]), (.enter, [.array([.uint32(1)], of: "u")]), (.setState, [.string("a")]),
            (.getState, []), (.report, [.uint64(0), report]),
        ]
        for (method, arguments) in calls {
            let refusal = await client.refusal {
                _ = try await client.connection.call(NotifydProtocol.call(method, arguments, options: .noAutoStart))
            }
            #expect(refusal == "org.freedesktop.DBus.Error.InvalidArgs", "\(method) \(arguments)")
        }
        let long = String(repeating: "n", count: 1 << 20)
        try await client.set(long, 5)
        #expect(try await client.state(long) == 5)
        let endless = String(repeating: "n", count: 9 << 20)
        #expect(await client.refusal { try await client.enter(endless) } == "LimitsExceeded")
        #expect(await client.refusal { _ = try await client.state(endless) } == "LimitsExceeded")
        for number in UInt64(1)...20_000 {
            try client.send(.setState, .string("n\(number % 100)"), .uint64(number), .uint64(number))
        }
        #expect(try await client.state("n99") == 19_999)
        #expect(try await stillServes())
    }

    // Rules, a.14: otherwise one process could keep notifyd busy with reports about itself.
    @Test func onlyTheFirstReportComesUnasked() async throws {
        try await client.report(ProcessReport(names: [NameReport(name: "a")]))
        let again = ProcessReport(names: [NameReport(name: "b")])
        #expect(await client.refusal { try await client.report(again) } == "InvalidRequest")
        client.answers(again)
        // notifyd waits a second for the report, and then lists what it knows.
        try await eventually { try await client.list().processes.first?.report.names.map(\.name) == ["b"] }
    }

    /// notifyd asks the bus who a client is, so a client cannot pretend to be another one.
    @Test func signalsInNotifydsNameChangeNothing() async throws {
        try await client.set("a", 5)
        let forged = try DBusMessage.signal(
            path: "/org/freedesktop/DBus",
            interface: "org.freedesktop.DBus",
            member: "NameOwnerChanged",
            arguments: [.string(client.connection.uniqueName ?? ""), .string(""), .string("")],
            destination: NotifydProtocol.busName
        )
        let other = try Client(daemon.bus)
        try other.connection.send(forged)
        // This call comes after the signal in the bus's order.
        #expect(try await other.state("a") == 5)
    }

    @Test func tooManyListsOfOneUserAreRefused() async throws {
        try await client.enter("a")
        // The client does not report, so the lists wait.
        client.answers(nil)
        // On a busy machine a round may be over before the next call comes.
        try await eventually("one is refused") {
            for _ in 0..<32 { try client.send(.list, .uint64(0)) }
            return await client.refusal { try await client.call(.list, .uint64(0)) } == "LimitsExceeded"
        }
        #expect(try await client.state("a") == 0)
        try await eventually("the responses have been read") {
            await client.refusal { try await client.call(.list, .uint64(0)) } == nil
        }
    }

    @Test func manyNamesAreListedInPages() async throws {
        let names = (0..<8000).map { "com.example.a-name-of-some-length.\($0)" }
        try await client.call(.enter, .names(names))
        client.answers(names)
        #expect(try await client.call(.list, .uint64(0))[0].elementsValue?.count ?? 0 < 5000)
        let (listed, processes) = try await client.list()
        #expect(Set(listed.map(\.name)).isSuperset(of: names))
        #expect(processes.reduce(0) { $0 + $1.report.names.count } == names.count)
    }
}
