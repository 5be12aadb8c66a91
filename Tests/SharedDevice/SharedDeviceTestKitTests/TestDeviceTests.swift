import Foundation
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
@_spi(Extensions) import SharedDeviceTestKit
import Testing

@Suite("A test device")
struct TestDeviceTests {
    @Test("a stopped app is neither told nor clean until resumed; a search leaves it so")
    func stopped() async throws {
        let apps = ["field-service", "point-of-sale"].map(ExampleApps.app)
        let device = try await TestDevice(apps: apps, users: ["ada"])
        try await device.signIn("ada")
        try await device.waitUntilRunning()
        let app = try device.app(ExampleApps.identifier("field-service"))
        try await app.work()
        try await eventually("it goes on after the search") { !app.isStopped }
        try await app.stop()
        try await device.beginSignOut()
        let other = ExampleApps.identifier("point-of-sale")
        try await eventually("the other is clean") {
            try device.report().apps.contains { $0.identifier == other && $0.isClean }
        }
        let report = try device.report()
        let error = try #require(throws: TestDeviceError.self) { try report.requireClean() }
        #expect(error.code == .notClean && "\(error)".contains("not heard of it; its process is stopped"), "\(error)")
        #expect(try !app.findings(of: ["Ada <ada>"]).isEmpty && app.isStopped)
        let late = try await #require(throws: TestDeviceError.self) {
            try await device.waitUntilHeard(within: .milliseconds(100))
        }
        #expect(late.code == .timeout && late.description.contains("has not heard of it"), "\(late)")
        try app.resume()
        #expect(try await device.waitUntilHeard().apps.allSatisfy { $0.heardAfter != nil })
        try await device.waitUntilClean().requireClean(of: "Ada <ada>")
        let kinds = try device.report().events.filter { $0.lane == app.identifier }.map(\.kind)
        #expect(kinds.contains(.stopped) && kinds.contains(.continued) && kinds.contains(.told))
    }

    @Test("the descendants of an app end with the device, even if the app was killed")
    func descendants() async throws {
        var started: [pid_t] = []
        do {
            let script = "sleep 1000 & echo $!; setsid sleep 1000 & echo $!; wait"
            let device = try await TestDevice(apps: [
                TestApp("org.example.shell", executable: "/bin/sh", arguments: ["-c", script])
            ])
            let app = try device.app("org.example.shell")
            try await app.line { _ in app.lines.count == 2 }
            started = app.lines.compactMap { pid_t($0) }
            try await app.kill()
            #expect(started.count == 2 && started.allSatisfy { kill($0, 0) == 0 })
        }
        try await eventually("both have ended") {
            started.allSatisfy { ["Z", nil].contains(ProcessState.letter(of: $0)) }
        }
    }

    @Test("a killed app owes its cleanup until it starts again, over a broker restart")
    func killed() async throws {
        let (device, app) = try await ExampleApps.deviceAtWork("point-of-sale")
        try await app.kill()
        // It took part, so it does not count as an app that never ran.
        try await device.beginSignOut()
        try await eventually("the round is known, and the end of the app") {
            "\(try device.report())".contains("its process ended by signal 9")
        }
        #expect(try !device.report().isClean)
        try await device.restartBroker()
        try app.start()
        try await device.waitUntilClean().requireClean(of: "Ada <ada>")
    }

    @Test("a late app holds nothing, and an empty round proves nothing")
    func lateStart() async throws {
        var late = ExampleApps.app("point-of-sale")
        late.startsWithDevice = false
        let device = try await TestDevice(apps: [late], users: ["ada"])
        try await device.signIn("ada")
        let report = try await device.signOut()
        #expect(report.isClean)
        #expect(try #require(throws: TestDeviceError.self) { try report.requireClean() }.code == .provesNothing)
        try device.app(late.identifier).start()
        try await device.waitUntilRunning()
        #expect(try device.report().isClean)
    }

    @Test("data that a slowed app leaves behind is found, with its path")
    func leftBehind() async throws {
        let (device, app) = try await ExampleApps.deviceAtWork("flight-briefing")
        try device.slowCleanup(of: app.identifier, by: .milliseconds(300))
        try "0123ada's note".write(toFile: "\(app.home)/cache/left", atomically: true, encoding: .utf16LittleEndian)
        let report = try await device.signOut(deadline: .seconds(60))
        try report.requireClean(of: "Ada <ada>")
        // A search for a string that was never there proves nothing.
        let nothing = try #require(throws: TestDeviceError.self) { try report.requireClean(of: "no such secret") }
        #expect(nothing.code == .provesNothing)
        let error = try #require(throws: TestDeviceError.self) { try report.requireClean(of: "Ada's note") }
        #expect(error.code == .notClean && error.description.contains("at byte 8 of cache/left"), "\(error)")
        try await eventually("it was stopped and went on") {
            let kinds = try device.report().events.filter { $0.lane == app.identifier }.map(\.kind)
            return kinds.contains(.stopped) && kinds.contains(.continued)
        }
    }

    @Test("apps survive restarts of bus and broker, and a later sign-out reaches them")
    func faults() async throws {
        let (device, app) = try await ExampleApps.deviceAtWork("field-service")
        try device.restartBus()
        try await device.restartBroker()
        try await device.waitUntilRunning()
        try await device.spoofBroadcast()
        #expect(try !app.findings(of: ["Ada <ada>"]).isEmpty)
        try await device.signOut(deadline: .seconds(60)).requireClean(of: "Ada <ada>")
        let events = try device.report().events
        #expect(events.contains { $0.lane == DeviceEvent.brokerLane && $0.kind == .killed })
        #expect(events.contains { $0.lane == DeviceEvent.busLane && $0.kind == .spoofed })
    }

    @Test("an app that follows the warnings hears of the end of the session")
    func warning() async throws {
        let device = try await TestDevice(users: ["ada"])
        try await device.signIn("ada")
        var warnings = device.application("org.example.notes").sessionWarnings.makeAsyncIterator()
        #expect(await warnings.next() == .some(nil))
        try await device.warn()
        #expect(await warnings.next()??.reason == .shiftEnd)
    }

    @Test("a locked session outlives a broker restart, and another person ends it")
    func lock() async throws {
        let (device, app) = try await ExampleApps.deviceAtWork("field-service", users: ["ada", "grace"])
        let account = try await device.application("org.example.other").getCurrentAccount().current
        try await device.lock()
        try await device.restartBroker()
        try await device.unlock("ada")
        let other = try await device.application("org.example.other").getCurrentAccount()
        #expect(other.current == account && account != nil)
        #expect(try !app.findings(of: ["Ada <ada>"]).isEmpty)
        try await device.lock()
        try await device.signIn("grace")
        #expect(try await device.application("org.example.other").getCurrentAccount().current?.username == "grace")
        try await eventually("nothing of the locked session is left", within: .seconds(60)) {
            try app.findings(of: ["Ada <ada>"]).isEmpty
        }
    }

    @Test("an app that never asks, ends at once or is missing is named with a reason")
    func stranger() async throws {
        let sleeper = TestApp("org.example.sleeper", executable: "sleep", arguments: ["600"])
        let device = try await TestDevice(apps: [sleeper])
        let error = try await #require(throws: TestDeviceError.self) {
            try await device.waitUntilRunning(within: .milliseconds(200))
        }
        #expect(error.code == .timeout)
        #expect(error.description.contains("org.example.sleeper: it runs, but no app of this identifier"), "\(error)")
        try await device.signIn("ada")
        #expect(try await !device.signOut(deadline: .milliseconds(300)).isClean)
        let gone = TestApp("org.example.gone", executable: "sh", arguments: ["-c", "echo no such option >&2; exit 3"])
        let other = try await TestDevice(apps: [gone], users: ["ada"])
        let end = try await #require(throws: TestDeviceError.self) { try await other.waitUntilRunning() }
        #expect(end.description.contains("ended with status 3") && end.description.contains("no such option"))
        let missing = TestApp("org.example.none", executable: "/nonexistent/app")
        let refusal = try await #require(throws: TestDeviceError.self) { _ = try await TestDevice(apps: [missing]) }
        #expect(refusal.code == .programMissing)
    }

    @Test("an app that the bus starts gets its own directories and environment", .needsActivation)
    func activation() async throws {
        var app = ExampleApps.app("point-of-sale")
        app.busName = "org.notifycenter.example.PointOfSale"
        app.startsWithDevice = false
        app.arguments = ["--stay"]
        let device = try await TestDevice(apps: [app], users: ["ada"])
        try await device.signIn("ada")
        #expect(try !device.app(app.identifier).isRunning)
        try await device.activate(app.identifier)
        try await device.waitUntilRunning()
        try await device.signOut(deadline: .seconds(60)).requireClean()
        try await device.app(app.identifier).kill()
        #expect(try !device.app(app.identifier).isRunning)
    }

    @Test("apps have manifests, except scripts and apps that are not to be enrolled")
    func manifests() async throws {
        let directory = try TemporaryDirectory("manifests")
        let script = try directory.writeScript("script", "exec sleep 600")
        let link = "\(directory.path)/link"
        try FileManager.default.createSymbolicLink(atPath: link, withDestinationPath: "/bin/sleep")
        let device = try await TestDevice(apps: [
            TestApp("org.example.link", executable: link, arguments: ["600"], busName: "org.example.Link"),
            TestApp("org.example.script", executable: script),
            TestApp("org.example.launcher", executable: "sleep", arguments: ["600"], isEnrolled: false),
        ])
        let manifests = "\(device.directory)/configuration/apps"
        #expect(try FileManager.default.contentsOfDirectory(atPath: manifests) == ["org.example.link.json"])
        let content = try Data(contentsOf: URL(fileURLWithPath: "\(manifests)/org.example.link.json"))
        let manifest = try JSONDecoder().decode([String: String].self, from: content)
        let program = URL(fileURLWithPath: "/bin/sleep").resolvingSymlinksInPath().path
        #expect(manifest == ["id": "org.example.link", "executable": program, "busName": "org.example.Link"])
    }
}
