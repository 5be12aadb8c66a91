import DeviceConfiguration
import Foundation
import SharedDevice
import Testing

@testable import BrokerCore

/// Times are local, in Berlin.
@Suite("When a session ends automatically")
struct SignOutScheduleTests {
    private static let berlin: Calendar = {
        var calendar = Calendar(identifier: .gregorian)
        calendar.timeZone = TimeZone(identifier: "Europe/Berlin") ?? .gmt
        return calendar
    }()

    private static let localTime = LocalTime { [zone = berlin.timeZone] in zone.secondsFromGMT(for: $0) }

    /// `2026-03-28 13:00:00`; the seconds may be left out.
    private func date(_ text: String) throws -> Date {
        let parts = text.split { !$0.isNumber }.compactMap { Int($0) }
        try #require(parts.count >= 5)
        var components = DateComponents()
        (components.year, components.month, components.day) = (parts[0], parts[1], parts[2])
        (components.hour, components.minute, components.second) = (parts[3], parts[4], parts.dropFirst(5).first)
        return try #require(Self.berlin.date(from: components))
    }

    private func moment(_ text: String) throws -> Moment { Moment(wall: try date(text), uptime: .zero) }

    private func schedule(
        inactivity: Double?,
        shiftEnds: [Double] = [],
        longest: Double? = nil,
        warning: Double = 0,
        from began: Date,
        used: Date? = nil
    ) -> SignOutSchedule {
        var settings = SignOutSchedule.Settings()
        settings.inactivity = inactivity.map { .seconds($0) }
        settings.shiftEnds = Set(shiftEnds.map { Int($0 * 60) })
        settings.longest = longest.map { .seconds($0) }
        settings.warning = .seconds(warning)
        return SignOutSchedule(
            settings: settings,
            localTime: Self.localTime,
            startedAt: began,
            lastActivity: used ?? began
        )
    }

    @Test("the end of a lock is named if it comes before the end of a shift")
    func lockBeforeShift() throws {
        var schedule = schedule(inactivity: 600, shiftEnds: [9], warning: 60, from: try date("2026-01-05 08:00"))
        schedule.settings.locked = .seconds(30)
        let now = try moment("2026-01-05 08:59:20")
        _ = schedule.look(at: now, lockedAt: now.uptime - .seconds(20))
        #expect(schedule.end?.reason == .lock)
        #expect(schedule.end?.at == now.wall.addingTimeInterval(10))
    }

    @Test("each case of the table ends the session or gives the next time to look")
    func table() throws {
        // Inactivity in seconds, the hours at which shifts end, when the session began and was last used, and now.
        // Then the reason for the end, or the time of the next decision; `nil` for never.
        let cases: [(Double?, [Double], began: String, used: String?, now: String, expected: String?)] = [
            // Nothing is set.
            (nil, [], "2026-01-05 08:00", nil, "2026-01-09 08:00", nil),
            // Idle, but not for long enough; then for long enough, to the second.
            (900, [], "2026-01-05 08:00", "2026-01-05 08:10", "2026-01-05 08:24:59", "2026-01-05 08:25"),
            (900, [], "2026-01-05 08:00", "2026-01-05 08:10", "2026-01-05 08:25", "inactivity for 900 s"),
            // Never used since the sign-in.
            (1.5, [], "2026-01-05 08:00", nil, "2026-01-05 08:00:02", "inactivity for 1.5 s"),
            // The device slept over the timeout.
            (900, [], "2026-01-05 08:00", "2026-01-05 18:00", "2026-01-06 07:00", "inactivity for 900 s"),
            // A second before the end of the shift, and at its end.
            (nil, [14, 22], "2026-01-05 08:00", nil, "2026-01-05 13:59:59", "2026-01-05 14:00"),
            (nil, [14, 22], "2026-01-05 08:00", "2026-01-05 13:59:59", "2026-01-05 14:00", "shift end 14:00"),
            // A user who signs in at the end of a shift belongs to the next one.
            (nil, [6, 14], "2026-01-05 14:00", nil, "2026-01-05 14:00", "2026-01-06 06:00"),
            // The broker was down at the end of the shift, and for two days more.
            (nil, [14, 22], "2026-01-05 08:00", nil, "2026-01-07 09:00", "shift end 14:00"),
            // A shift that ends at midnight.
            (nil, [0], "2026-12-31 18:00", nil, "2027-01-01 00:00", "shift end 00:00"),
            // The earlier of inactivity and shift counts.
            (900, [14], "2026-01-05 08:00", "2026-01-05 13:30", "2026-01-05 13:40", "2026-01-05 13:45"),
            (900, [14], "2026-01-05 08:00", "2026-01-05 13:55", "2026-01-05 13:56", "2026-01-05 14:00"),
            // A night of 23 hours is no hour later, and one of 25 hours no hour earlier.
            (nil, [6], "2026-03-28 22:00", nil, "2026-03-29 05:59:59", "2026-03-29 06:00"),
            (nil, [6], "2026-10-24 22:00", nil, "2026-10-25 05:00", "2026-10-25 06:00"),
            // The shift ends in the hour that summer time leaves out, or in the first of two equal hours.
            (nil, [2.5], "2026-03-28 22:00", nil, "2026-03-29 01:59", "2026-03-29 03:00"),
            (nil, [2.5], "2026-10-24 22:00", nil, "2026-10-25 02:30", "shift end 02:30"),
            // The clock was set back behind the last activity: the wait begins anew.
            (900, [], "2026-01-05 08:00", "2026-01-05 12:00", "2026-01-05 11:00", "2026-01-05 11:15"),
            // The clock was years ahead at the sign-in: the next end of a shift counts.
            (nil, [14], "2031-01-05 08:00", nil, "2026-01-05 11:00", "2026-01-05 14:00"),
        ]
        for (inactivity, shiftEnds, began, used, now, expected) in cases {
            let used = try used.map(date)
            var schedule = schedule(inactivity: inactivity, shiftEnds: shiftEnds, from: try date(began), used: used)
            let decision = schedule.look(at: try moment(now))
            if let expected, !expected.contains("-") {
                #expect(decision == .signOut(expected), "\(began), \(now)")
            } else {
                let next = try expected.map(date)
                #expect(decision == .look(at: next), "\(began), \(now)")
            }
        }
    }

    @Test("each case of the table gives the next end, and whether the warning has begun")
    func warnings() throws {
        typealias Case = (
            inactivity: Double?, shiftEnds: [Double], longest: Double?, used: String, now: String,
            end: String, reason: SessionEnd.Reason, isSoon: Bool, look: String
        )
        // The session began at 08:00, and the warning comes 120 s before the end.
        let cases: [Case] = [
            (900, [], nil, "08:10", "08:22:59", "08:25", .inactivity, false, "08:23"),
            (900, [], nil, "08:10", "08:23", "08:25", .inactivity, true, "08:25"),
            (nil, [14], nil, "08:10", "13:57", "14:00", .shiftEnd, false, "13:58"),
            (nil, [14], nil, "08:10", "13:58", "14:00", .shiftEnd, true, "14:00"),
            (nil, [], 3600, "08:59", "08:58", "09:00", .longestSession, true, "09:00"),
            // The warning takes half of a short limit, so that it is not there from the start.
            (180, [], nil, "08:10", "08:11", "08:13", .inactivity, false, "08:11:30"),
            (180, [], nil, "08:10", "08:11:30", "08:13", .inactivity, true, "08:13"),
            // Of the ends whose warnings have begun, apps are told of the earliest.
            (180, [14], nil, "13:56:50", "13:58:10", "14:00", .shiftEnd, true, "13:58:20"),
            (180, [14], nil, "13:56:10", "13:58:10", "13:59:10", .inactivity, true, "13:59:10"),
            (180, [14], nil, "13:57:50", "13:58:10", "14:00", .shiftEnd, true, "13:59:20"),
        ]
        for (inactivity, shiftEnds, longest, used, now, end, reason, isSoon, look) in cases {
            func time(_ text: String) throws -> Date { try date("2026-01-05 \(text)") }
            var schedule = schedule(
                inactivity: inactivity,
                shiftEnds: shiftEnds,
                longest: longest,
                warning: 120,
                from: try time("08:00"),
                used: try time(used)
            )
            #expect(schedule.look(at: try moment("2026-01-05 \(now)")) == .look(at: try time(look)), "\(now), \(end)")
            #expect(schedule.end == SessionEnd(at: try time(end), reason: reason, isSoon: isSoon), "\(now), \(end)")
        }
    }

    @Test("activity postpones the end of an idle session, not of the longest or of a shift")
    func activity() throws {
        var schedule = schedule(inactivity: 900, shiftEnds: [14], from: try date("2026-01-05 15:00"))
        var decisions = [schedule.look(at: try moment("2026-01-05 13:50"))]
        schedule.noteActivity(at: try moment("2026-01-05 13:58"))
        decisions.append(schedule.look(at: try moment("2026-01-05 14:00:01")))
        schedule.settings.shiftEnds = []
        decisions.append(schedule.look(at: try moment("2026-01-05 14:00:01")))
        let (first, last) = (try date("2026-01-05 14:00"), try date("2026-01-05 14:13"))
        #expect(decisions == [.look(at: first), .signOut("shift end 14:00"), .look(at: last)])
        let (start, used) = (try date("2026-01-05 08:00"), try date("2026-01-05 15:30"))
        schedule = self.schedule(inactivity: 7200, longest: 28_800, from: start, used: used)
        let end = try date("2026-01-05 16:00")
        #expect(schedule.look(at: try moment("2026-01-05 15:30")) == .look(at: end))
        schedule.noteActivity(at: try moment("2026-01-05 15:59:59"))
        #expect(schedule.look(at: try moment("2026-01-05 15:59:59")) == .look(at: end))
        // The device slept, or the broker was down, past the end.
        #expect(schedule.look(at: try moment("2026-01-05 16:30")) == .signOut("longest session of 28800 s"))
    }

    @Test("a clock that is set back, or back and forth, extends or shortens no session")
    func setBack() throws {
        let start = try date("2026-01-05 15:00")
        func moment(_ seconds: Double, setBack: Double = 3600) -> Moment {
            Moment(wall: start.addingTimeInterval(seconds - setBack), uptime: .seconds(seconds))
        }
        let ends: [SignOutSchedule.Decision] = [.look(at: moment(900, setBack: 0).wall), .look(at: moment(900).wall)]
        // Activity moves the end of an idle session only.
        var idle = schedule(inactivity: 900, from: start)
        var decisions = [moment(840, setBack: 0), moment(840), moment(900)].map { idle.look(at: $0) }
        idle.noteActivity(at: moment(900))
        decisions.append(idle.look(at: moment(1000)))
        #expect(decisions == ends + [.signOut("inactivity for 900 s"), .look(at: moment(1800).wall)])
        var long = schedule(inactivity: nil, longest: 900, from: start)
        decisions = [moment(840, setBack: 0), moment(840), moment(900)].map {
            long.noteActivity(at: $0)
            return long.look(at: $0)
        }
        #expect(decisions == ends + [.signOut("longest session of 900 s")])
        var changing = schedule(inactivity: nil, longest: 900, from: start)
        decisions = [0, 3600, 0].map { changing.look(at: moment(300, setBack: $0)) }
        #expect(decisions == [ends[0], ends[1], ends[0]])
    }
}
