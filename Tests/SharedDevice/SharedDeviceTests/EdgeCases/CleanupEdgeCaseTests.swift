import DBus
import Foundation
import NotifyCenterTestKit
import SharedDevice
import Testing

@Suite("Edge cases of broadcasts, requests and cleanups")
struct CleanupEdgeCaseTests {
    // E6
    @Test("even in the background, an app must clean up before it gets an account")
    func background() async throws {
        // The next user's sign-in waits only briefly; the app has to wait.
        let configuration = DeviceOnPrivateBus.strict + #", "cleanupTimeout": 0.5"#
        let (_, control, app) = try await deviceWithListener(showing: "ada", configuration: configuration)
        let ada = try #require(app.events.last { $0.event == "open" }?.identifier)
        app.kill()
        let session = try await control.signOut()
        let mark = app.mark
        try app.start("--hold")
        try await app.wait("cleanup ada → -", after: mark)
        #expect(app.story(after: mark) == ["hidden", "hidden", "cleanup ada → -"])
        #expect(try await app.ask("token \(ada)").code == "no_current_account")
        #expect(try await app.ask("signin grace correct horse grace").code == "cleanup_required")
        #expect(try await app.ask("work").detail == nil)
        // Another user is signed in, and the app is not told which.
        let grace = try await control.signIn("grace")
        #expect(try await app.ask("token \(grace.identifier)").code == "cleanup_required")
        let answer = try await app.ask("current")
        #expect(answer.account == nil && answer.previous == ["ada"] && app.sessions == [session])
        try app.tell("go")
        try await app.wait("open grace", after: mark)
        #expect(app.story(after: mark).suffix(2) == ["cleaned", "open grace"] && !app.sessions.contains(session))
        #expect(try await app.ask("token \(grace.identifier)").code == nil)
    }

    // E7
    @Test("a repeated or late broadcast causes one cleanup, and another sender's none")
    func repeatedBroadcast() async throws {
        let (device, control, app) = try await deviceWithListener(showing: "ada")
        let (start, files) = (app.mark, app.files)
        let spoof = ["-p", "SHARED_MODE_CURRENT_ACCOUNT_CHANGED"]
        let spoofer = try ChildProcess(ChildProcess.built("notifyutil"), spoof, environment: device.bus.environment)
        #expect(await spoofer.exitStatus() == 0)
        try await eventually("the app counts the broadcast") { try await app.ask("device").detail == "shared 1" }
        #expect(app.story(after: start) == [] && app.files == files)
        let sleeper = try Listener("sleeper", on: device)
        try await sleeper.start(showing: "ada")
        _ = try await app.ask("watch")
        sleeper.suspend()
        let mark = app.mark
        try await control.signOut()
        // One app has not asked yet, so the broker repeats the broadcast to all apps.
        try await eventually("more broadcasts") { app.events(after: mark).filter { $0.event == "asked" }.count >= 2 }
        try await app.expectCleanup(after: mark)
        // For the resumed app all broadcasts are late, including those of the next session.
        let late = sleeper.mark
        try await control.signIn("grace")
        try await control.signOut()
        sleeper.resume()
        try await sleeper.wait("nobody", after: late)
        _ = try await sleeper.ask("current")
        try await sleeper.expectCleanup(after: late)
    }

    // E8
    @Test("an app that asks after the broadcast gets the new state at once")
    func commitFirst() async throws {
        let (_, control, app) = try await deviceWithListener(showing: nil)
        _ = try await app.ask("watch")
        for round in 0..<12 {
            let user = round % 4 == 0 ? "ada" : round % 4 == 2 ? "grace" : nil
            let mark = app.mark
            var ended: UInt64?
            if let user { try await control.signIn(user) } else { ended = try await control.signOut() }
            func answers() -> [Listener.Event] { app.events(after: mark).filter { $0.event == "asked" } }
            // At a sign-in, the log may now contain a response to a reminder of the previous round. If the response to
            // the only broadcast is wrong, no right one follows. At a sign-out no reminder is pending, so the first
            // response counts.
            try await eventually("round \(round): the new response") {
                answers().contains { $0.account == user && $0.code == nil }
            }
            if user == nil {
                let first = try #require(answers().first)
                #expect(first.code == nil && first.account == nil, "round \(round)")
            }
            // Wait, so that repeated broadcasts belong to this round and not to the next.
            try await app.wait(user.map { "open \($0)" } ?? "nobody", after: mark)
            guard let ended else { continue }
            // After the last receipt the broker reminds no app.
            try await control.waitUntilComplete(ended)
        }
    }

    // E9
    @Test("an app that ends during its cleanup still has to clean up", arguments: ["begin", "midway"])
    func crash(_ point: String) async throws {
        let device = try await DeviceOnPrivateBus()
        let control = ControlApp(on: device)
        let app = try Listener(on: device)
        try await control.signIn("ada")
        try app.start("--crash", point)
        try await app.wait("open ada")
        let session = try await control.signOut()
        // It ends twice at the same point, the second time without having received a broadcast.
        for _ in 0..<2 {
            let process = try #require(app.process)
            #expect(await process.exitStatus() == 128 + SIGKILL)
            #expect(app.story().last == "cleanup ada → -")
            try await control.wait(for: app, in: session, .owed)
            if point == "begin" { #expect(app.files.count == 3) }
            #expect(try await control.report(session)?.isComplete == false)
            try app.start("--crash", point)
        }
        app.kill()
        let mark = app.mark
        try app.start()
        try await app.expectCleanup(after: mark, isNewProcess: true)
        try await control.wait(for: app, in: session, .finished)
    }

    // E10
    @Test("requests that overlap a change lose none of it")
    func overlappingAChange() async throws {
        let device = try await DeviceOnPrivateBus()
        let control = ControlApp(on: device)
        let app = try Listener(on: device)
        for _ in 0..<2 {
            try await control.signIn("ada")
            var mark = app.mark
            try app.start("--hold")
            try await app.wait("open ada", after: mark)
            mark = app.mark
            try app.tell("current 50")
            try await control.signOut()
            try app.tell("current 50")
            try await control.signIn("grace")
            try app.tell("current 50")
            try await eventually("all requests have a response") {
                app.events(after: mark).filter { $0.event == "currents" }.count == 3
            }
            // If an older response had arrived last, the app would have kept it.
            let answer = try await app.ask("current")
            #expect(answer.account == "grace" && answer.previous == ["ada"])
            try app.tell("go")
            try await app.wait("open grace", after: mark)
            #expect(app.story(after: mark).filter { $0 == "cleaned" }.count == 1)
            #expect(app.sessions.count == 1)
            app.kill()
            try await control.signOut()
            mark = app.mark
            try app.start("--until-nobody")
            try await app.wait("nobody", after: mark)
            app.kill()
        }
    }

    @Test("a cleanup that began before another process ended has to be repeated")
    func endedBeside() async throws {
        let device = try await DeviceOnPrivateBus()
        let control = ControlApp(on: device)
        let first = try Listener(on: device)
        try await control.signIn("ada")
        try first.start("--hold")
        try await first.wait("open ada")
        let observer = try DBusConnection.open(device.bus.bus)
        let before = try await device.connections(observer)
        let second = try Listener(on: device, directory: first.directory)
        try await second.start(showing: "ada")
        second.suspend()
        let mark = first.mark
        let session = try await control.signOut()
        try await first.wait("cleanup ada → -", after: mark)
        second.kill()
        try await eventually("the bus has said so") { try await device.connections(observer) == before }
        // The broker says that the cleanup is due again, but not to the app that is cleaning up.
        _ = try await first.ask("current")
        try first.tell("go")
        try await first.wait("nobody", after: mark)
        try await control.waitUntilComplete(session)
        #expect(first.story(after: mark).filter { $0 == "cleaned" }.count == 2)
    }

    // E21
    @Test("leaving shared mode ends the session like a sign-out; returning is announced")
    func modeChange() async throws {
        let (device, control, app) = try await deviceWithListener(showing: "ada")
        let session = try #require(app.sessions.first)
        let mark = app.mark
        _ = try await app.ask("watch")
        try device.configure(#"{"sharedDeviceMode": false}"#)
        try await app.expectCleanup(after: mark)
        #expect(try await app.ask("device").detail == "personal 0")
        #expect(try await app.ask("signin ada correct horse ada").code == "not_shared_device")
        try await control.waitUntilComplete(session)
        let back = app.mark
        try device.configure(#"{"sharedDeviceMode": true, "passwordSignIn": true}"#)
        try await app.wait("asked", after: back)
        #expect(try await app.ask("device").detail == "shared 0")
        #expect(try await app.ask("signin ada correct horse ada").code == nil)
        try await app.wait("open ada", after: back)
    }

    // E25
    @Test("another program with an identifier that a manifest names is refused")
    func impostor() async throws {
        let device = try await DeviceOnPrivateBus(starts: false)
        try device.enrol("org.example.listener", ChildProcess.built("listener-app"))
        try await device.startBroker()
        let control = ControlApp(on: device)
        let impostor = device.application("listener")
        try await control.signIn("ada")
        let app = try Listener(on: device)
        try await app.start(showing: "ada")
        #expect(await code { _ = try await impostor.getCurrentAccount() } == .appNotEligible)
        let session = try await control.signOut()
        try await app.wait("nobody")
        #expect(await code { _ = try await impostor.getCurrentAccount() } == .appNotEligible)
        let report = try #require(try await control.report(session))
        #expect(report.apps.filter { $0.identifier.hasPrefix(app.identifier) }.map(\.identifier) == [app.identifier])
        try await control.wait(for: app, in: session, .finished)
    }
}
