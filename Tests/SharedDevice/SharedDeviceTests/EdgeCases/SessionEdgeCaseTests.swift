import Foundation
import NotifyCenterTestKit
import SharedDevice
import Testing

@Suite("Edge cases of sessions and absent apps")
struct SessionEdgeCaseTests {
    // E1, E2, E3, E4, E24
    @Test(
        "an app that missed changes cleans up first, and learns only about its data",
        arguments: [
            // The user returns, also after another user, of whom the app learns nothing.
            (false, [], "ada"), (false, ["grace"], "ada"),
            // The app misses the sign-out because it does not run. At its next start no user is signed in, or
            // another user, or another user has signed in and out.
            (true, [], nil), (true, [], "grace"), (true, ["grace"], nil),
        ] as [(Bool, [String], String?)]
    )
    func missedChanges(isKilled: Bool, between: [String], current: String?) async throws {
        let (device, control, app) = try await deviceWithListener(showing: "ada")
        let mark = app.mark
        if isKilled { app.kill() } else { app.suspend() }
        var sessions = [try await control.signOut()]
        for user in between {
            try await control.signIn(user)
            sessions.append(try await control.signOut())
        }
        if let current { try await control.signIn(current) }
        for session in sessions {
            // The broker does not ask the app for data that it never had.
            let expected: CleanupReport.Progress? = session == sessions[0] ? .owed : nil
            #expect(app.part(in: try await control.report(session))?.progress == expected)
        }
        #expect(app.sessions == [sessions[0]] && app.files.count == 3)
        let name = current ?? "-"
        if isKilled {
            // The broker does not forget the cleanup, either.
            try await device.restartBroker()
            try await eventually("it responds") { await control.application.getDeviceInformation().problem == nil }
            try app.start("--hold")
            try await app.wait("cleanup ada → \(name)", after: mark)
            let answer = try await app.ask("current")
            #expect(answer.account == current && answer.previous == ["ada"] && app.sessions == [sessions[0]])
            try app.tell("go")
        } else {
            app.resume()
        }
        let last = try await app.wait(current.map { "open \($0)" } ?? "nobody", after: mark)
        let story = (isKilled ? ["hidden"] : []) + ["hidden", "cleanup ada → \(name)", "cleaned", last.line]
        #expect(app.story(after: mark) == story && app.sessions == Set([last.epoch].compactMap(\.self)))
        let told = app.events.compactMap(\.account) + app.events.compactMap(\.previous).joined()
        #expect(current == "grace" || !told.contains("grace"))
        try await control.wait(for: app, in: sessions[0], .finished)
        let log = try device.rows(
            "SELECT event || ' ' || session FROM audit WHERE event LIKE 'signed-%' ORDER BY sequence"
        )
        #expect(log.starts(with: sessions.flatMap { ["signed-in \($0)", "signed-out \($0)"] }), "\(log)")
    }

    // E4
    @Test("the bus starts an app with a bus name to clean up", .needsActivation)
    func startedByTheBus() async throws {
        let home = try TemporaryDirectory("started-by-the-bus")
        let (program, name) = (ChildProcess.built("listener-app"), "org.example.listener")
        let command = "\(program) --identifier \(name) --directory \(home.path) --bus-name \(name) --until-nobody"
        let bus = try PrivateBus(PrivateBus.Options(services: [name: command]))
        let device = try await DeviceOnPrivateBus(starts: false, bus: bus)
        try device.enrol(name, program, more: #", "busName": "\#(name)""#)
        try await device.startBroker()
        let control = ControlApp(on: device)
        let app = try Listener(on: device, directory: home.path)
        try await control.signIn("ada")
        try await app.start(showing: "ada")
        app.kill()
        let mark = app.mark
        let session = try await control.signOut()
        try await control.wait(for: app, in: session, .finished)
        #expect(app.story(after: mark).starts(with: ["hidden", "hidden", "cleanup ada → -", "cleaned"]))
        #expect(app.files.isEmpty)
        try await app.wait("nobody", after: mark)
    }

    @Test("if the bus cannot start an app for its cleanup, the status says why")
    func notStartedByTheBus() async throws {
        let device = try await DeviceOnPrivateBus(starts: false)
        let name = "org.example.listener"
        let program = ChildProcess.built("listener-app")
        try device.enrol(name, program, more: #", "busName": "\#(name)""#)
        try await device.startBroker()
        let control = ControlApp(on: device)
        let app = try Listener(on: device)
        try await control.signIn("ada")
        try await app.start(showing: "ada")
        app.kill()
        try await control.signOut()
        try await eventually("the status says it") {
            let lines = try await device.command("status").output.split(separator: "\n")
            let problem = " listener could not be started as \(name): "
            return lines.contains { $0.hasPrefix("not started") && $0.contains(problem) }
        }
        try app.start()
        try await eventually("it owes nothing more") {
            try await !device.command("status").output.contains("not started")
        }
    }

    // E5
    @Test("a stopped app's cleanup stays pending, and a strict device refuses sign-ins")
    func stopped() async throws {
        let (_, control, app) = try await deviceWithListener(showing: "ada", configuration: DeviceOnPrivateBus.strict)
        app.suspend()
        let mark = app.mark
        let session = try await control.signOut()
        var impatient = InteractiveTokenParameters(scopes: []) { _ in
            Credentials(username: "grace", password: "correct horse grace")
        }
        impatient.patience = .milliseconds(300)
        try await control.wait(forAllBut: app, in: session)
        #expect(await code { _ = try await control.application.acquireToken(with: impatient) } == .cleanupPending)
        #expect(app.part(in: try await control.report(session))?.progress == .owed)
        #expect(app.mark == mark)
        app.resume()
        try await control.signIn("grace")
        #expect(!app.sessions.contains(session))
        try await app.wait("open grace", after: mark)
        #expect(app.story(after: mark).prefix(3) == ["hidden", "cleanup ada → -", "cleaned"])
    }

    // E22, E23
    @Test("an app's first request returns no cleanup, with and without an account")
    func firstQuestion() async throws {
        let (device, control, app) = try await deviceWithListener(showing: nil)
        #expect(app.story() == ["hidden", "nobody"])
        func expectAnswer(_ app: Listener, _ account: String?) async throws {
            let answer = try await app.ask("current")
            #expect(answer.code == nil && answer.account == account && answer.previous == [])
        }
        try await expectAnswer(app, nil)
        try await control.signIn("ada")
        try await app.wait("open ada")
        let late = try Listener("late", on: device)
        try await late.start(showing: "ada")
        #expect(late.story() == ["hidden", "open ada"])
        try await expectAnswer(late, "ada")
        let mark = app.mark
        try await control.signOut()
        try await app.wait("nobody", after: mark)
        try await expectAnswer(app, nil)
    }

    // E26
    @Test("an app without its record is told by the ledger; a second cleanup is harmless")
    func twice() async throws {
        let (_, control, app) = try await deviceWithListener(showing: "ada")
        app.kill()
        let session = try await control.signOut()
        // The app deletes everything, and ends before it has reported that. Then the test deletes its record.
        var mark = app.mark
        try app.start("--crash", "end")
        try await app.wait("cleaned", after: mark)
        app.process?.waitUntilExit()
        #expect(app.files.isEmpty)
        #expect(app.part(in: try await control.report(session))?.progress != .finished)
        try FileManager.default.removeItem(atPath: "\(app.directory)/state")
        mark = app.mark
        try app.start()
        try await app.expectCleanup(after: mark, isNewProcess: true)
        try await control.wait(for: app, in: session, .finished)
    }
}
