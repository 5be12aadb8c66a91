import DBus
import NotifyCenter
import Testing

@Suite struct ReportTests {
    private static let report = ProcessReport(
        suspensions: 2,
        names: [
            NameReport(
                name: "com.example.menu",
                state: StateReport(value: .max, time: 7),
                monitors: [MonitorReport(token: 3, path: "/etc/hosts", flags: 2)],
                registrations: RegistrationKind.allCases.map {
                    RegistrationReport(token: 3, kind: $0, suspensions: 1, deliveries: 9)
                }
            ),
            NameReport(name: "com.example.bare"),
        ]
    )

    /// Returns the arguments as a receiver reads them.
    private func reader(_ message: borrowing DBusMessage) -> ArgumentReader { ArgumentReader(message.reader) }

    @Test("a report, a page and states to keep arrive as they were sent")
    func roundTrip() throws {
        let message = try NotifydProtocol.call(.report, [.uint64(7)] + Self.report.values)
        var arguments = reader(message)
        #expect(arguments.unsigned() == 7)
        #expect(try ProcessReport(&arguments, limit: Amount(Self.report)) == Self.report)
        withExtendedLifetime(message) {}
        var page = ListPage()
        page.names = [NameListing(name: "com.example.menu", state: 5, isPermanent: true)]
        page.processes = [ProcessListing(connection: ":1.5", process: 12, user: 1000, report: Self.report)]
        page.cursor = 9
        #expect(ListPage(page.values) == page)
        let signal = try NotifydProtocol.signal(.keep, [Self.report.names.keptStates], to: ":1.1")
        let hasSignature = signal.has(signature: "a(stt)")
        #expect(hasSignature)
        var states = reader(signal)
        let kept = try [NameReport](keptStates: &states)
        #expect(kept == [NameReport(name: "com.example.menu", state: StateReport(value: .max, time: 7))])
        withExtendedLifetime(signal) {}
    }

    @Test(arguments: [
        Amount(names: 1, bytes: 1000, registrations: 100), Amount(names: 9, bytes: 20, registrations: 100),
        Amount(names: 9, bytes: 1000, registrations: 6),
    ])
    func aReportOfTooMuchIsNotReadToItsEnd(_ limit: Amount) throws {
        let message = try NotifydProtocol.call(.report, [.uint64(7)] + Self.report.values)
        var arguments = reader(message)
        _ = arguments.unsigned()
        #expect(throws: ArgumentReader.TooMuch.self) { try ProcessReport(&arguments, limit: limit) }
        withExtendedLifetime(message) {}
    }

    @Test(
        arguments: [
            [], [.uint64(0)], [.string(""), .string(""), .uint64(0)],
            [.array([.string("n")], of: "s"), .array([], of: "s"), .uint64(0)],
            [.array([], of: "s"), .array([.structure([.string(":1.5")])], of: "(s)"), .uint64(0)],
        ] as [[DBusValue]]
    )
    func aPageOfAnotherFormIsRefused(_ values: [DBusValue]) {
        #expect(ListPage(values) == nil)
    }

    @Test func theFormOfANameSaysWhoOwnsIt() {
        let scopes: [(String, NameScope)] = [
            ("self.x", .process), ("selfish", .everyone), ("user.uid.501", .user(501)),
            ("user.uid.501.menu", .user(501)), ("user.uid.5010", .user(5010)), ("user.uid.foo", .root),
            ("user.uid.", .root), ("user.uid.-1", .root), ("user.uid.+1", .root), ("user.uid.4294967296", .root),
            ("user.uid.0501", .root), ("com.example", .everyone),
        ]
        for (name, scope) in scopes { #expect(NameScope(name) == scope, "\(name)") }
    }
}
