import DBusTransport
import NotifydProtocol
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

    @Test func aReportArrivesAsItWasSent() throws {
        #expect(try ProcessReport(Self.report.value) == Self.report)
        let listing = ProcessListing(
            connection: ":1.5",
            process: 12,
            user: 1000,
            program: "/usr/bin/menu",
            report: Self.report
        )
        #expect(try ProcessListing(listing.value) == listing)
        let name = NameListing(name: "com.example.menu", state: 5, isPermanent: true)
        #expect(try NameListing(name.value) == name)
    }

    @Test(arguments: [
        DBusValue.string("no dictionary"),
        .fields([:]),
        .fields(["suspensions": .string("2")]),
        .fields(["suspensions": .uint32(0), "names": .uint32(1)]),
        .fields(["suspensions": .uint32(0), "names": .array([.fields([:])], of: "a{sv}")]),
        .fields([
            "suspensions": .uint32(0),
            "names": .array([.fields(["name": .string("n"), "state": .uint64(1)])], of: "a{sv}"),
        ]),
        .fields([
            "suspensions": .uint32(0),
            "names": .array(
                [.fields(["name": .string("n"), "registrations": .array([.string("x")], of: "s")])],
                of: "a{sv}"
            ),
        ]),
    ])
    func aReportOfAnotherFormIsRefused(_ value: DBusValue) {
        #expect(throws: NotifydProtocol.FieldError.self) { try ProcessReport(value) }
    }

    @Test func theFormOfANameSaysWhoOwnsIt() {
        #expect(NameScope("self.x") == .process)
        #expect(NameScope("selfish") == .everyone)
        #expect(NameScope("user.uid.501") == .user(501))
        #expect(NameScope("user.uid.501.menu") == .user(501))
        #expect(NameScope("user.uid.5010") == .user(5010))
        #expect(NameScope("user.uid.foo") == .root)
        #expect(NameScope("user.uid.") == .root)
        #expect(NameScope("user.uid.-1") == .root)
        #expect(NameScope("user.uid.+1") == .root)
        #expect(NameScope("user.uid.4294967296") == .root)
        #expect(NameScope("user.uid.0501") == .root)
        #expect(NameScope("com.example") == .everyone)
    }
}
