import DeviceStorage
import Foundation
import NotifyCenterTestKit
import SharedDevice
import Testing

@Suite("Edge cases of the broker, sign-ins and sign-outs")
struct BrokerEdgeCaseTests {
    // E11
    @Test("without a broker the mode is unknown, requests fail, and nothing is deleted")
    func noBroker() async throws {
        let device = try await DeviceOnPrivateBus(starts: false)
        let app = try Listener(on: device)
        try app.start()
        try await app.wait("hidden broker_unavailable")
        func expectRefusals() async throws {
            let information = try await app.ask("device")
            #expect(information.detail?.hasPrefix("unknown ") == true && information.code == "broker_unavailable")
            for command in ["signin ada correct horse ada", "signout", "token someone.here", "current"] {
                #expect(try await app.ask(command).code == "broker_unavailable", "\(command)")
            }
        }
        try await expectRefusals()
        try await device.startBroker()
        try await app.wait("nobody")
        #expect(try await app.ask("signin ada correct horse ada").code == nil)
        try await app.wait("open ada")
        let (mark, files) = (app.mark, app.files)
        device.killBroker()
        try await app.wait("hidden broker_unavailable", after: mark)
        try await expectRefusals()
        #expect(app.files == files)
        try await device.startBroker()
        try await app.wait("open ada", after: mark)
        #expect(!app.story(after: mark).contains { $0.hasPrefix("clean") || $0 == "nobody" })
    }

    // E12
    @Test("an error of the broker loses nothing: the next response has the change")
    func brokerFails() async throws {
        let (device, control, app) = try await deviceWithListener(showing: "ada")
        app.suspend()
        let mark = app.mark
        let session = try await control.signOut()
        try await control.signIn("grace")
        try await eventually("no other app owes") { try await control.report(session)?.owing.count == 1 }
        // The broker has to record that the app is told of grace, and cannot.
        let database = try device.database()
        for event in ["INSERT", "UPDATE"] {
            let failure = "SELECT RAISE(ABORT, 'a test');"
            try database.execute("CREATE TRIGGER no_\(event) BEFORE \(event) ON part BEGIN \(failure) END")
        }
        app.resume()
        try await app.wait("hidden broker_failed", after: mark)
        #expect(try await app.ask("current").code == "broker_failed")
        #expect(app.events(after: mark).allSatisfy { $0.account == nil && $0.previous == nil })
        #expect(app.sessions == [session])
        try database.execute("DROP TRIGGER no_INSERT; DROP TRIGGER no_UPDATE")
        try await app.wait("open grace", after: mark)
        #expect(app.story(after: mark).suffix(3) == ["cleanup ada → grace", "cleaned", "open grace"])
        #expect(app.story(after: mark).filter { $0.hasPrefix("cleanup") }.count == 1)
        #expect(!app.sessions.contains(session))
    }

    // E13
    @Test("there is only one account, also in the broker's table")
    func oneAccount() async throws {
        let device = try await DeviceOnPrivateBus()
        let apps = try (0..<3).map { try Listener("listener\($0)", on: device) }
        for app in apps { try app.start() }
        for app in apps { try await app.wait("nobody") }
        for (app, user) in zip(apps, ["ada", "grace", "ada"]) { try app.tell("signin \(user) correct horse \(user)") }
        var answers: [Listener.Event] = []
        for app in apps { answers.append(try await app.wait("signin")) }
        #expect(answers.compactMap(\.code) == ["account_already_signed_in", "account_already_signed_in"])
        let winner = try #require(answers.first { $0.code == nil }?.account)
        for app in apps { try await app.wait("open \(winner)") }
        #expect(Set(apps.flatMap(\.events).filter { $0.event == "open" }.map(\.account)) == [winner])
        let before = try device.deviceRow()
        for row in [2, 1] { #expect(throws: SQLiteError.self) { try device.insertAccount(row) } }
        #expect(try device.deviceRow() == before)
        #expect(try device.rows("SELECT count(*) || '' FROM device") == ["1"])
    }

    // E17, E18
    @Test("a wrong sign-out and a second sign-in are refused without change")
    func refusals() async throws {
        let (device, control, app) = try await deviceWithListener(showing: nil)
        let grace = try await control.signIn("grace")
        try await app.wait("open grace")
        try await control.signOut()
        try await app.wait("cleaned")
        #expect(try await app.ask("signout \(grace.identifier)").code == "no_current_account")
        try await control.signIn("ada")
        try await app.wait("open ada")
        let (mark, files) = (app.mark, app.files)
        let before = try device.deviceRow()
        #expect(try await app.ask("signout \(grace.identifier)").code == "current_account_mismatch")
        // The refusal is the same for the same user, and for a wrong password.
        for words in ["grace correct horse grace", "grace wrong", "ada correct horse ada", "ada wrong"] {
            #expect(try await app.ask("signin \(words)").code == "account_already_signed_in", "\(words)")
        }
        #expect(try device.deviceRow() == before)
        // Any effect of the refused requests would be visible before the next response.
        #expect(try await app.ask("current").account == "ada")
        #expect(app.story(after: mark) == [] && app.files == files)
    }
}

extension DeviceOnPrivateBus {
    func rows(_ sql: String) throws -> [String] { try database().rows(sql) { $0[0] ?? "" } }

    func deviceRow() throws -> [String] {
        try rows("SELECT id || mode || epoch || coalesce(account_identifier, '-') FROM device")
    }

    func insertAccount(_ row: Int) throws {
        try database().run(
            "INSERT INTO device (id, mode, epoch, account_identifier, account_username) VALUES (?, 'shared', 9, 'b', 'b')",
            row
        )
    }
}
