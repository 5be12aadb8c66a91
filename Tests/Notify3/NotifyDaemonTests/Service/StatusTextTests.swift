import Basics
import NotifyCenter
import Testing

@testable import notifyd

// Rules, a.15
@Suite struct StatusTextTests {
    private func status(_ figures: Figures?) -> StatusText {
        StatusText(
            process: 77,
            bus: "session",
            configuration: "/etc/notify.conf",
            reservations: 2,
            figures: figures,
            paths: PathWatcher.Figures(paths: 1, watches: 3),
            counts: (3, 1, 1)
        )
    }

    private static let common = """
        notifyd, process 77
        bus: “session”
        configuration: “/etc/notify.conf”, reserved prefixes 2
        names: 3, permanent 1
        processes: 1

        """

    @Test func theStatusContainsTheFiguresExceptForOtherUsers() {
        let figures = Figures(calls: [.leave: 2, .enter: 3], refusals: 1, pathChanges: 4)
        #expect(
            status(figures).text == Self.common + """
                paths: 1, watches 3, changes posted 4
                calls: Enter 3, Leave 2; refused 1, dropped 0

                """
        )
        #expect(status(nil).text == Self.common)
    }

    @Test func messagesCannotControlATerminal() {
        let line = Diagnostics.line("a\nb\u{1B}[2J\u{9B}2J\u{7F}\u{202E}\u{2028}é")
        #expect(line == "notifyd: a b [2J 2J   é\n")
    }
}
