import NotifydProtocol
import Testing

@testable import NotifyDaemon

// Rules, a.15
@Suite struct StatusTextTests {
    private let status = StatusText(
        process: 77,
        bus: "session",
        configuration: "/etc/notify.conf",
        reservations: 2,
        figures: Figures(calls: [.leave: 2, .enter: 3], refusals: 1, pathChanges: 4),
        paths: PathWatcher.Figures(paths: 1, watches: 3),
        names: [
            NameListing(name: "a", state: 5, isPermanent: false), NameListing(name: "p", state: 0, isPermanent: true),
            NameListing(name: "evil\nname “x”: state 9", state: 1, isPermanent: false),
        ],
        processes: [
            ProcessListing(
                connection: ":1.1",
                process: 10,
                user: 501,
                program: "/usr/bin/menu",
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
    )

    @Test func theShortStatusIsFigures() {
        #expect(
            status.summary == """
                notifyd, process 77
                bus: “session”
                configuration: “/etc/notify.conf”, reserved prefixes 2
                names: 3, permanent 1
                processes: 1
                paths: 1, watches 3, changes told 4
                calls: Enter 3, Leave 2; refused 1

                """
        )
    }

    @Test func theLongStatusHasEveryNameWithItsProcesses() {
        #expect(
            status.details == """

                name “a”: state 5
                  process 10, user 501, :1.1, suspended 1, “/usr/bin/menu”
                    token 3: file, suspended 2, notified 9
                    token 3 monitors “/etc/hosts”, flags 0x82

                name “p”: state 0, permanent

                name “evil\\u{a}name “x”: state 9”: state 1

                """
        )
    }

    @Test func messagesCannotControlATerminal() {
        let line = Diagnostics.line("a\nb\u{1B}[2J\u{9B}2J\u{7F}\u{202E}\u{2028}é")
        #expect(line == "notifyd: a b [2J 2J   é\n")
    }
}
