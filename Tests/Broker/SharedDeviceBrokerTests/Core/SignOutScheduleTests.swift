import DeviceConfiguration
import Foundation
import SharedDeviceBroker
import Testing

@testable import SharedDeviceBroker

@Suite("When a session ends automatically")
struct SignOutScheduleTests {
    /// The settings, when the session began and was last used, and the expected decision. Times are local, in Berlin.
    struct Case: Sendable, CustomTestStringConvertible {
        let testDescription: String
        var inactivity: Duration?
        var shiftEnds: Set<Int> = []
        let began: String
        var used: String?
        let now: String
        /// `shift end 14:00`, or the time of the next decision; `nil` for never.
        let expected: String?
    }

    static let berlin: Calendar = {
        var calendar = Calendar(identifier: .gregorian)
        calendar.timeZone = TimeZone(identifier: "Europe/Berlin") ?? .gmt
        return calendar
    }()

    static let localTime = LocalTime { [zone = berlin.timeZone] in zone.secondsFromGMT(for: $0) }

    /// `2026-03-28 13:00:00` in local time. A final `+` means the second of two equal clock times.
    static func date(_ text: String) throws -> Date {
        let parts = text.split { !$0.isNumber }.compactMap { Int($0) }
        try #require(parts.count == 6)
        var components = DateComponents()
        (components.year, components.month, components.day) = (parts[0], parts[1], parts[2])
        (components.hour, components.minute, components.second) = (parts[3], parts[4], parts[5])
        let date = try #require(berlin.date(from: components))
        return text.hasSuffix("+") ? date.addingTimeInterval(3600) : date
    }

    static let cases = [
        Case(
            testDescription: "nothing is set",
            began: "2026-01-05 08:00:00",
            now: "2026-01-09 08:00:00",
            expected: nil
        ),
        Case(
            testDescription: "idle, but not for long enough",
            inactivity: .seconds(900),
            began: "2026-01-05 08:00:00",
            used: "2026-01-05 08:10:00",
            now: "2026-01-05 08:24:59",
            expected: "2026-01-05 08:25:00"
        ),
        Case(
            testDescription: "idle for long enough, to the second",
            inactivity: .seconds(900),
            began: "2026-01-05 08:00:00",
            used: "2026-01-05 08:10:00",
            now: "2026-01-05 08:25:00",
            expected: "inactivity for 900 s"
        ),
        Case(
            testDescription: "never used since the sign-in",
            inactivity: .milliseconds(1500),
            began: "2026-01-05 08:00:00",
            now: "2026-01-05 08:00:02",
            expected: "inactivity for 1.5 s"
        ),
        Case(
            testDescription: "the device slept over the timeout",
            inactivity: .seconds(900),
            began: "2026-01-05 08:00:00",
            used: "2026-01-05 18:00:00",
            now: "2026-01-06 07:00:00",
            expected: "inactivity for 900 s"
        ),
        Case(
            testDescription: "the shift has some time to go",
            shiftEnds: [14 * 60, 22 * 60],
            began: "2026-01-05 08:00:00",
            now: "2026-01-05 13:59:59",
            expected: "2026-01-05 14:00:00"
        ),
        Case(
            testDescription: "the shift ends",
            shiftEnds: [14 * 60, 22 * 60],
            began: "2026-01-05 08:00:00",
            used: "2026-01-05 13:59:59",
            now: "2026-01-05 14:00:00",
            expected: "shift end 14:00"
        ),
        Case(
            testDescription: "who signs in at the end of a shift is of the next one",
            shiftEnds: [6 * 60, 14 * 60],
            began: "2026-01-05 14:00:00",
            now: "2026-01-05 14:00:00",
            expected: "2026-01-06 06:00:00"
        ),
        Case(
            testDescription: "the broker was down at the end of the shift, and for two days more",
            shiftEnds: [14 * 60, 22 * 60],
            began: "2026-01-05 08:00:00",
            now: "2026-01-07 09:00:00",
            expected: "shift end 14:00"
        ),
        Case(
            testDescription: "a shift that ends at midnight",
            shiftEnds: [0],
            began: "2026-12-31 18:00:00",
            now: "2027-01-01 00:00:00",
            expected: "shift end 00:00"
        ),
        Case(
            testDescription: "the earlier of the two counts: idleness",
            inactivity: .seconds(900),
            shiftEnds: [14 * 60],
            began: "2026-01-05 08:00:00",
            used: "2026-01-05 13:30:00",
            now: "2026-01-05 13:40:00",
            expected: "2026-01-05 13:45:00"
        ),
        Case(
            testDescription: "the earlier of the two counts: the shift",
            inactivity: .seconds(900),
            shiftEnds: [14 * 60],
            began: "2026-01-05 08:00:00",
            used: "2026-01-05 13:55:00",
            now: "2026-01-05 13:56:00",
            expected: "2026-01-05 14:00:00"
        ),
        Case(
            testDescription: "a night of 23 hours is no hour later",
            shiftEnds: [6 * 60],
            began: "2026-03-28 22:00:00",
            now: "2026-03-29 05:59:59",
            expected: "2026-03-29 06:00:00"
        ),
        Case(
            testDescription: "a night of 25 hours is no hour earlier",
            shiftEnds: [6 * 60],
            began: "2026-10-24 22:00:00",
            now: "2026-10-25 05:00:00",
            expected: "2026-10-25 06:00:00"
        ),
        Case(
            testDescription: "the end of the shift is in the hour that summer time leaves out",
            shiftEnds: [2 * 60 + 30],
            began: "2026-03-28 22:00:00",
            now: "2026-03-29 01:59:00",
            expected: "2026-03-29 03:00:00"
        ),
        Case(
            testDescription: "the end of the shift is in the hour that there is twice: the first",
            shiftEnds: [2 * 60 + 30],
            began: "2026-10-24 22:00:00",
            now: "2026-10-25 02:30:00",
            expected: "shift end 02:30"
        ),
        Case(
            testDescription: "the clock was set back behind the last activity: the wait begins anew",
            inactivity: .seconds(900),
            began: "2026-01-05 08:00:00",
            used: "2026-01-05 12:00:00",
            now: "2026-01-05 11:00:00",
            expected: "2026-01-05 11:15:00"
        ),
        Case(
            testDescription: "the clock was years ahead at the sign-in: the next end of a shift counts",
            shiftEnds: [14 * 60],
            began: "2031-01-05 08:00:00",
            now: "2026-01-05 11:00:00",
            expected: "2026-01-05 14:00:00"
        ),
    ]

    @Test("each case of the table ends the session or gives the next time to look", arguments: cases)
    func table(_ row: Case) throws {
        let began = try Self.date(row.began)
        let now = try Self.date(row.now)
        let used = try row.used.map(Self.date) ?? began
        var schedule = SignOutSchedule(
            settings: SignOutSchedule.Settings(inactivity: row.inactivity, shiftEnds: row.shiftEnds),
            localTime: Self.localTime,
            startedAt: began,
            lastActivity: used
        )
        switch schedule.look(at: Moment(wall: now, uptime: .zero)) {
        case .signOut(let reason): #expect(reason == row.expected)
        case .look(let next):
            let expected = try row.expected.map { text in text.contains("-") ? try Self.date(text) : .distantPast }
            #expect(next == expected)
        }
    }

    @Test("activity postpones the end, also after the clock was set back")
    func overTime() throws {
        var schedule = SignOutSchedule(
            settings: SignOutSchedule.Settings(inactivity: .seconds(900), shiftEnds: [14 * 60]),
            localTime: Self.localTime,
            startedAt: try Self.date("2026-01-05 15:00:00"),
            lastActivity: try Self.date("2026-01-05 15:00:00")
        )
        let first = schedule.look(at: Moment(wall: try Self.date("2026-01-05 13:50:00"), uptime: .zero))
        #expect(first == .look(at: try Self.date("2026-01-05 14:00:00")))
        schedule.noteActivity(at: Moment(wall: try Self.date("2026-01-05 13:58:00"), uptime: .zero))
        let second = schedule.look(at: Moment(wall: try Self.date("2026-01-05 14:00:01"), uptime: .zero))
        #expect(second == .signOut("shift end 14:00"))
        schedule.settings.shiftEnds = []
        let third = schedule.look(at: Moment(wall: try Self.date("2026-01-05 14:00:01"), uptime: .zero))
        #expect(third == .look(at: try Self.date("2026-01-05 14:13:00")))
    }

    @Test("setting the clock back does not extend an idle session")
    func setBack() throws {
        let start = try Self.date("2026-01-05 15:00:00")
        var schedule = SignOutSchedule(
            settings: SignOutSchedule.Settings(inactivity: .seconds(900)),
            localTime: Self.localTime,
            startedAt: start,
            lastActivity: start
        )
        func moment(_ seconds: Double, setBack: Double = 0) -> Moment {
            Moment(wall: start.addingTimeInterval(seconds - setBack), uptime: .seconds(seconds))
        }
        let first = schedule.look(at: moment(840))
        #expect(first == .look(at: moment(900).wall))
        let second = schedule.look(at: moment(840, setBack: 3600))
        #expect(second == .look(at: moment(900, setBack: 3600).wall))
        let third = schedule.look(at: moment(900, setBack: 3600))
        #expect(third == .signOut("inactivity for 900 s"))
        schedule.noteActivity(at: moment(900, setBack: 3600))
        let fourth = schedule.look(at: moment(1000, setBack: 3600))
        #expect(fourth == .look(at: moment(1800, setBack: 3600).wall))
    }
}
