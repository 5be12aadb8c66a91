import NotifyCenter
import Testing

// Rules, a.15
@Suite struct StatusDetailsTests {
    @Test func everyNameIsThereWithItsProcessesFromAllPages() {
        var (first, second) = (ListPage(), ListPage())
        first.names = [
            NameListing(name: "a", state: 5, isPermanent: false), NameListing(name: "p", state: 0, isPermanent: true),
        ]
        second.names = [NameListing(name: "evil\nname “x”: state 9", state: 1, isPermanent: false)]
        second.processes = [
            ProcessListing(
                connection: ":1.1",
                process: 10,
                user: 501,
                report: ProcessReport(
                    suspensions: 1,
                    names: [
                        NameReport(
                            name: "a",
                            monitors: [MonitorReport(token: 3, path: "/etc/hosts", flags: 0x82)],
                            registrations: [RegistrationReport(token: 3, kind: .file, suspensions: 2, deliveries: 9)]
                        )
                    ]
                )
            )
        ]
        first.add(second)
        #expect(
            first.text == """

                name “a”: state 5
                  process 10, user 501, :1.1, suspended 1
                    token 3: file, suspended 2, notified 9
                    token 3 monitors “/etc/hosts”, flags 0x82

                name “evil\\u{a}name “x”: state 9”: state 1

                name “p”: state 0, permanent

                """
        )
    }
}
