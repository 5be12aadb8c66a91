import CommandParts
import DBus
import Foundation
@_spi(Extensions) import SharedDevice
import Testing

@Suite("The console on a terminal")
struct DeviceScreenTests {
    private func text(
        _ view: DeviceView,
        columns: Int = 80,
        rows: Int? = nil,
        footer: DeviceScreen.Footer = .none,
        after: Double = 60
    ) -> [String] {
        DeviceScreen.lines(view, at: ended + after, columns: columns, rows: rows, footer: footer, clock: clock)
            .map { $0.text(isColoured: false) }
    }

    private func view(
        _ fields: BrokerProtocol.Fields,
        apps: [BrokerProtocol.Fields] = [],
        round: CleanupReport? = nil
    ) -> DeviceView {
        var view = DeviceView()
        view.take(ObservedDevice(answer(fields, apps: apps)), round)
        return view
    }

    // MARK: Layout

    @Test("the screen fits 80 or 40 columns, and counts the lines that do not fit")
    func standard() {
        let standard = """
            Shared device of Contoso                                                13:47:40
            ○ No account is signed in
            The next sign-in waits for mail, photos.
            Strict: the next person waits until every app has deleted this one’s data.

            CLEANUP of session 7, which ended at 13:46:40
            ✗ 2 of 3 owe a cleanup for 1 min; 1 failed.
              mail    ✗ failed                             T╌╌╌╌╌B━━━━━━━━━!━━━━━━━━━━━━━━━━
              photos  ○ has not heard of it, does not run  ·································
              notes   ✓ clean after 15 s                   TB━━━━━━F
                                                           sign-out                    1 min

            APPS
              mail    ● runs          ! owes session 7
              notes   ● runs
              photos  ○ does not run  ! owes session 7

            LOG
              13:47:10  failed      session 7  mail  disk full
              13:46:55  finished    session 7  notes  3 files
              13:46:41  signed-out  session 7  the app notes

            q quit
            """
        let lines = standard.components(separatedBy: "\n")
        #expect(text(.cleaning(), footer: .keys) == lines)
        // In 40 columns an app of the round has two lines, and sentences are wrapped.
        let narrow = """
            Shared device of Contoso        13:47:40
            ○ No account is signed in
            The next sign-in waits for mail, photos.
            Strict: the next person waits until
            every app has deleted this one’s data.

            CLEANUP of session 7, which ended at 13…
            ✗ 2 of 3 owe a cleanup for 1 min; 1
            failed.
              mail    ✗ failed
              T╌╌╌╌╌╌B━━━━━━━━━━━!━━━━━━━━━━━━━━━━━━
              photos  ○ has not heard of it, does n…
              ······································
              notes   ✓ clean after 15 s
              TB━━━━━━━F
              sign-out                         1 min

            APPS
              mail    ● runs          ! owes sessio…
              notes   ● runs
              photos  ○ does not run  ! owes sessio…
            """
        #expect(text(.cleaning(), columns: 40).prefix(21) == narrow.components(separatedBy: "\n")[...])
        // On a low screen the newest entries and the keys stay.
        let low = lines[..<7] + ["  … 4 more", ""] + lines[17...18] + ["  … 2 more", "", "q quit"]
        #expect(text(.cleaning(), rows: 14, footer: .keys) == Array(low))
    }

    @Test("no line is wider and no screen higher than the terminal", arguments: [1, 2, 10, 20, 33, 57, 80, 200])
    func bounds(columns: Int) {
        var view = DeviceView.cleaning(["storeProblem": .string(String(repeating: "full ", count: 100))])
        view.add(observedEntries((31...400).map { entry($0, "told") }))
        #expect(view.entries.count == DeviceView.mostEntries)
        for rows in [1, 2, 3, 10, 24, 60] {
            let lines = text(view, columns: columns, rows: rows, footer: .question(8))
            #expect(lines.count <= rows && lines.allSatisfy { $0.count <= columns }, "\(rows) rows")
        }
    }

    // MARK: Content

    @Test("the question before a sign-out names the consequence (CO-6)")
    func signedIn() {
        let fields: BrokerProtocol.Fields = ["account": account("ada"), "signedInAt": .double(1_000_000)]
        let view = view(fields, apps: [app("notes", holds: true), app("mail", holds: true), app("idle")])
        let lines = text(view, footer: .question(8), after: 3720)
        #expect(lines[1...2] == ["● ada", "Signed in since 13:46:40, for 1 h 2 min."])
        let question = ["Sign ada out? 2 apps hold data of this session and will delete it.", "y yes   n no"]
        #expect(lines.suffix(2) == question[...])
        #expect(text(view, footer: .keys).last == "s sign out   q quit")
        // The question was about an earlier session. Its answer must not sign the next user out.
        #expect(text(view, footer: .question(6)).last == "s sign out   q quit")
    }

    @Test("without a response content is dim (CO-4), without permission it is gone")
    func gone() {
        var view = view(["account": account("ada")], apps: [app("notes")])
        view.lose(.gone)
        let lines = DeviceScreen.lines(view, at: ended + 600, columns: 120, footer: .keys, clock: clock)
        let plain = lines.map { $0.text(isColoured: false) }
        let unknown = "? Unknown: the broker does not respond. At its last response, 13:47:40, ada was signed in."
        #expect(plain[1] == unknown)
        #expect(plain.last == "q quit", "the screen offers no sign-out while the broker does not respond")
        let apps = lines.map { $0.text(isColoured: true) }.filter { $0.contains("notes") }
        #expect(apps.allSatisfy { $0.contains("\u{1B}[2m") && !$0.contains("\u{1B}[32m") })
        #expect(text(DeviceView())[1] == "Asking the broker …")
        view = DeviceView.cleaning()
        view.lose(.denied)
        #expect(view.device == nil && view.round == nil && view.entries.isEmpty)
        let denied = text(view, columns: 120)
        #expect(denied.count == 2 && denied[1].contains("operators"))
    }

    @Test("a lock and the end of a shift are named, and inactivity only as a warning")
    func sessionEnd() {
        func lines(_ reason: SessionEnd.Reason, isSoon: Bool) -> [String] {
            let end = SessionEnd(at: ended + 100, reason: reason, isSoon: isSoon)
            let fields: BrokerProtocol.Fields = ["account": account("ada")]
            return text(view(fields.merging(end.fields) { $1 })).filter { $0.contains("ends") }
        }
        #expect(lines(.inactivity, isSoon: false) == [])
        #expect(lines(.inactivity, isSoon: true) == ["The session ends at 13:48:20 if the device is not used."])
        #expect(lines(.shiftEnd, isSoon: false) == ["The session ends at 13:48:20, the end of the shift."])
        let longest = "The session ends at 13:48:20, after the longest time of a session."
        #expect(lines(.longestSession, isSoon: true) == [longest])
        let lock = SessionEnd(at: ended + 100, reason: .inactivity, isSoon: true, locks: true)
        let locking = text(view(["account": account("ada")].merging(lock.fields) { $1 }))
        #expect(locking.contains("The session is locked at 13:48:20 if the device is not used."))
        #expect(lines(.lock, isSoon: false) == ["The session ends at 13:48:20 if the screen stays locked."])
        func person(_ fields: BrokerProtocol.Fields) -> Bool {
            text(view(fields.merging(["account": account("ada")]) { $1 })).contains { $0.hasSuffix("ada, locked") }
        }
        #expect(person(["locked": .boolean(true)]) && !person([:]))
    }

    @Test("each problem has its own line")
    func problems() {
        let view = view([
            "storeProblem": .string("the disk is full"), "loginProblem": .string("logind is silent"),
            "enforcementProblems": .array([.string("org.example.a cannot be stopped")], of: "s"),
            "certificates": certificates(("fleetAuthority", .double(1_000_060)), ("fleetAgent", .double(1e10))),
        ])
        let lines = text(view).filter { $0.hasPrefix("⚠") }
        #expect(lines.prefix(3) == ["⚠ the disk is full", "⚠ logind is silent", "⚠ org.example.a cannot be stopped"])
        #expect(lines.dropFirst(3).map { $0.contains("(/fleetAuthority.pem) ends within a day; without it") } == [true])
    }

    @Test("a completed round says how it ended")
    func summaries() {
        for (progress, sentence) in [
            (.finished, "✓ Every app reported its data deleted, the last one after 2.0 s."),
            (.waived, "W Closed after 2.0 s: 1 of 1 waived by an administrator."),
            (.enforced, "E Complete after 2.0 s: 1 of 1 stopped, data deleted."),
        ] as [(CleanupReport.Progress, String)] {
            let app = CleanupReport.App(identifier: "a", progress: progress, toldAfter: 1, finishedAfter: 2)
            #expect(text(view([:], round: adasRound(.complete, app))).contains(sentence))
        }
        #expect(text(view([:], round: adasRound(.complete))).contains("✓ No app held data."))
    }

    @Test("letters of the same moment are next to each other, also at the end of the axis")
    func collisions() {
        func app(_ time: Double) -> CleanupReport.App {
            .init(identifier: "a", progress: .finished, toldAfter: time, begunAfter: time, finishedAfter: time)
        }
        let view = view([:], round: adasRound(.complete, app(0), app(10)))
        let rows = text(view).filter { $0.contains("clean after") }
        #expect(rows.contains { $0.hasSuffix("TBF") && $0.count == 80 })
        #expect(rows.contains { $0.hasSuffix("  TBF") && $0.count < 60 })
    }

    // MARK: Untrusted values

    @Test("text of other processes cannot move the cursor, change colours or break lines")
    func strangers() {
        let evil = "a\u{1B}[2J\u{1B}]0;title\u{7}\r\n\u{9B}31m\u{202E}\u{2028}b"
        let app: BrokerProtocol.Fields = [
            "identifier": .string(evil), "startProblem": .string(evil), "owes": .array([.uint64(1)], of: "t"),
        ]
        var view = view(
            [
                "account": account(evil), "organization": .string(evil), "storeProblem": .string(evil),
                "signInHeldFor": .array([.string(evil)], of: "s"), "cleanupPolicy": .string(evil),
                "mode": .string("shared"),
            ],
            apps: [app],
            round: adasRound(.open, .init(identifier: evil, progress: .failed, detail: evil))
        )
        view.add(observedEntries([entry(1, evil, app: evil, detail: evil)]))
        for footer in [DeviceScreen.Footer.question(8), .message(evil)] {
            let lines = DeviceScreen.lines(view, at: ended, columns: 200, footer: footer, clock: clock)
            for line in lines {
                let plain = line.text(isColoured: false)
                #expect(plain.unicodeScalars.allSatisfy { $0.properties.generalCategory != .control })
                // The only colours are the screen's own.
                #expect(line.text(isColoured: true).replacing(/\u{1B}\[\d+m/, with: "").hasPrefix(plain))
            }
        }
    }

    @Test("wide characters and combining marks take their real number of columns")
    func wide() {
        for name in ["携帯電話の管理者", "👩🏽‍💻👩🏽‍💻👩🏽‍💻", "z" + String(repeating: "\u{301}", count: 300)] {
            let lines = text(view(["account": account(name)], apps: []), columns: 10)
            #expect(lines[1].count <= 10)
        }
        #expect(text(view(["account": account("携帯電話の管理者")]), columns: 10)[1] == "● 携帯電…")
    }

    @Test("a response with invalid values is displayed; a round without an end is refused")
    func anyAnswer() throws {
        let nonsense: [BrokerProtocol.Fields] = [
            [:],
            [
                "apps": .string("x"), "account": .uint32(0), "rounds": .array([.string("a")], of: "s"),
                "revision": .string(""),
            ],
            ["time": .double(.nan), "signedInAt": .double(.infinity), "cleanupTimeout": .double(-.infinity)],
            [
                "time": .double(1e300), "account": account("ada"), "signedInAt": .double(-1e300),
                "mode": .string("shared"),
            ],
        ]
        for fields in nonsense {
            var view = DeviceView()
            view.take(ObservedDevice(fields), nil)
            view.add(observedEntries([.fields([:]), .fields(["sequence": .uint64(.max)])]))
            #expect(!text(view).isEmpty)
        }
        func round(endedAt: Double, _ time: Double) -> DBusValue {
            let app: BrokerProtocol.Fields = [
                "identifier": .string("a"), "progress": .string("finished"), "toldAfter": .double(time),
                "finishedAfter": .double(time),
            ]
            return .fields([
                "session": .uint64(7), "endedAt": .double(endedAt), "outcome": .string("open"),
                "apps": .array([.fields(app)], of: "a{sv}"),
            ])
        }
        for time in [1e300, -1e300, .infinity, .nan, 253_402_300_800] {
            #expect(throws: BrokerProtocol.Malformed.self) { try CleanupReport(round(endedAt: time, 1)) }
            let report = try CleanupReport(round(endedAt: 1_000_000, time))
            #expect(report.apps.first?.toldAfter == nil, "\(time)")
        }
        var view = DeviceView.cleaning()
        let app = CleanupReport.App(identifier: "a", progress: .finished, toldAfter: -1e300, finishedAfter: 1e300)
        view.take(try #require(view.device), adasRound(.open, app))
        #expect(!text(view).isEmpty)
    }
}

@Suite("Formatting of values")
struct WordsTests {
    @Test(
        "time spans are short and never too precise",
        arguments: [
            (0, "0 ms"), (0.0074, "7 ms"), (0.9999, "1.0 s"), (1.44, "1.4 s"), (59.7, "1 min"), (200, "3 min 20 s"),
            (7500, "2 h 5 min"), (273_600, "3 d 4 h"), (-1, "0 ms"), (.infinity, "long"), (.nan, "long"),
        ]
    )
    func spans(seconds: Double, text: String) { #expect(Words.span(seconds) == text) }
}
