import BrokerCore
import DeviceStorage
import Foundation
import NotifyCenterTestKit
import SharedDevice
import SharedDeviceBroker
import Testing

@Suite("Edge cases of sign-outs that overlap other events")
struct SignoutEdgeCaseTests {
    // E14
    @Test("a token request during a sign-out is refused or gets a token of its session")
    func tokenDuringSignOut() async throws {
        let (_, control, app) = try await deviceWithListener(showing: "ada")
        var user = "ada"
        for (round, next) in [nil, "ada", "grace", nil].enumerated() {
            let mark = app.mark
            try app.tell("tokens 40")
            try await app.wait("tokens-begin", after: mark)
            try await Task.sleep(for: .microseconds(Int.random(in: 0..<20_000)))
            // A stopped app finds the response and the broadcast together.
            let stops = round % 2 == 0
            if stops { app.suspend() }
            try await control.signOut()
            if let next { try await control.signIn(next) }
            if stops { app.resume() }
            try await app.wait("tokens", after: mark)
            try await app.wait("cleaned", after: mark)
            try await app.wait(next.map { "open \($0)" } ?? "nobody", after: mark)
            expectTokens(app.events(after: mark), of: user, then: next)
            if next == nil {
                try await control.signIn("ada")
                try await app.wait("open ada", after: mark)
            }
            user = next ?? "ada"
        }
    }

    /// Checks where an app's token responses may be in the events of one round.
    private func expectTokens(_ events: [Listener.Event], of user: String, then next: String?) {
        let refusals: Set = ["no_current_account", "current_account_mismatch"]
        let answers = events.filter { $0.event == "token" }
        #expect(answers.count == 40)
        #expect(answers.compactMap(\.code).allSatisfy(refusals.contains), "\(Set(answers.compactMap(\.code)))")
        #expect(answers.filter { $0.code == nil }.allSatisfy { $0.account == user })
        guard let hidden = events.firstIndex(where: { $0.event == "hidden" }),
            let cleanup = events.firstIndex(where: { $0.event == "cleanup" })
        else {
            Issue.record("it was not told: \(events.map(\.line))")
            return
        }
        func tokens(_ events: ArraySlice<Listener.Event>) -> Set<String> {
            Set(events.filter { $0.event == "token" && $0.code == nil }.compactMap(\.detail))
        }
        // Between the two events the app waits for the requests that were in progress when it was told.
        let (before, after) = (tokens(events[..<hidden]), tokens(events[cleanup...]))
        if next == user {
            // The same user's new session has different tokens.
            #expect(after.isDisjoint(with: before))
        } else {
            #expect(after.isEmpty)
        }
    }

    // E15
    @Test("a broker killed during a sign-out has done all or none of it")
    func killedDuringSignOut() async throws {
        let device = try await DeviceOnPrivateBus()
        let control = device.application("control")
        let app = try Listener(on: device)
        try await app.start(showing: nil)
        // The first sign-out is undisturbed and measures the duration.
        var longest = Duration.zero
        for round in 0..<6 {
            let mark = app.mark
            if try await control.getCurrentAccount().current == nil { try await control.signIn("ada") }
            try await eventually("ada is on the screen") { app.story().last == "open ada" }
            let session = try #require(try device.epoch())
            let start = ContinuousClock.now
            try app.tell("signout")
            if round == 0 {
                try await app.wait("signout", after: mark)
                longest = (ContinuousClock.now - start) * 2
            } else {
                try await Task.sleep(for: longest * Double.random(in: 0..<1))
            }
            device.killBroker()
            let answer = try await app.wait("signout", after: mark)
            // A sign-out that the broker had only noted before the kill counts, too: apps may have been told of it.
            let isNoted = try device.hasNotedSignOut()
            let isOut = try device.expectWhole(session) || isNoted
            if answer.code == nil { #expect(isOut) }
            try await device.startBroker()
            if isOut {
                try await app.wait("cleanup ada → -", after: mark)
                try await eventually("the screen shows no account") { app.story().last == "nobody" }
                #expect(app.files.isEmpty)
            } else {
                try await eventually("the screen shows ada again") { app.story().last == "open ada" }
                #expect(!app.story(after: mark).contains { $0.hasPrefix("cleanup") })
                #expect(app.sessions == [session])
            }
            let current = try await control.getCurrentAccount().current
            #expect((current == nil) == isOut)
        }
    }
}

extension DeviceOnPrivateBus {
    func epoch() throws -> UInt64? { try database().value("SELECT epoch FROM device") }

    /// Whether the broker's next start ends the session, although the tables contain it.
    func hasNotedSignOut() throws -> Bool {
        try DeviceStore(database: DeviceDatabase(directory: state)).load(at: .now).noted != nil
    }

    /// Checks that a session ended in all of the broker's tables or in none; returns whether it ended.
    func expectWhole(_ session: UInt64) throws -> Bool {
        try database().read { db in
            func count(_ sql: String) throws -> Int { try db.value(sql.replacing("SESSION", with: "\(session)")) ?? -1 }
            let isOut = try count("SELECT count(*) FROM device WHERE account_identifier IS NULL") == 1
            let ended = isOut ? 1 : 0
            let parts = try count("SELECT count(*) FROM part WHERE session = SESSION")
            #expect(parts >= 1)
            for (sql, expected) in [
                ("SELECT epoch FROM device", Int(session) + ended),
                ("SELECT count(*) FROM session WHERE number = SESSION AND ended_at IS NOT NULL", ended),
                ("SELECT count(*) FROM audit WHERE event = 'signed-out' AND session = SESSION", ended),
                ("SELECT count(*) FROM part WHERE session = SESSION AND progress IS NOT NULL", isOut ? parts : 0),
            ] { #expect(try count(sql) == expected, "\(sql)") }
            return isOut
        }
    }
}
