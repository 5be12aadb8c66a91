import DBus
import Foundation
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Testing

@Suite("Edge cases of browsers, organisations and administrators")
struct AdministrationEdgeCaseTests {
    // E16
    @Test("a hanging browser blocks neither the device nor the app, and is reported")
    func hangingBrowser() async throws {
        let device = try await DeviceOnPrivateBus(configuration: #""endSessionURL": "https://login.example/logout""#)
        let control = ControlApp(on: device)
        let programs = try TemporaryDirectory("hanging-browser")
        let script = #"echo $$ $# $1 > "$0.new"; mv "$0.new" "$0.called"; exec sleep 1000"#
        let opener = try programs.writeScript("xdg-open", script)
        let app = try Listener(on: device)
        let path = ProcessInfo.processInfo.environment["PATH"] ?? "/usr/bin:/bin"
        try app.start(environment: ["PATH": "\(programs.path):\(path)"])
        try await app.wait("nobody")
        // If a machine needs longer to sign out than the browser's deadline, retry with a longer deadline.
        var isSignedOutFirst = false
        for deadline in [800, 5000, 30_000] where !isSignedOutFirst {
            let mark = app.mark
            try await control.signIn("ada")
            try await app.wait("open ada", after: mark)
            try app.tell("signout-browser \(deadline)")
            try await app.wait("nobody", after: mark)
            let answer = try await app.wait("signout-browser", after: mark)
            #expect(answer.code == nil && answer.detail == "timedOut")
            let ends = app.events(after: mark).map(\.line).filter { ["nobody", "signout-browser"].contains($0) }
            let isCalled = FileManager.default.fileExists(atPath: "\(opener).called")
            isSignedOutFirst = isCalled && ends == ["nobody", "signout-browser"]
            #expect(app.story(after: mark) == ["open ada", "hidden", "cleanup ada → -", "cleaned", "nobody"])
        }
        #expect(isSignedOutFirst, "the sign-out does not wait for the browser")
        let call = try String(contentsOfFile: "\(opener).called", encoding: .utf8).split(whereSeparator: \.isWhitespace)
        #expect(call.dropFirst() == ["1", "https://login.example/logout"], "the page is the only argument")
        let browser = try #require(call.first.flatMap { pid_t($0) })
        try await eventually("the browser is ended") { kill(browser, 0) != 0 }
    }

    // E19
    @Test("a user of another organisation is refused after a correct password")
    func anotherTenant() async throws {
        let device = try await DeviceOnPrivateBus(configuration: #""tenantIdentifier": "contoso""#)
        try await device.add("eve", "--tenant", "fabrikam")
        try await device.add("carol", "--tenant", "contoso")
        let app = try Listener(on: device)
        try await app.start(showing: nil)
        let before = try device.deviceRow()
        #expect(try await app.ask("signin eve wrong").code == "authentication_failed")
        #expect(try await app.ask("signin eve correct horse eve").code == "brt_tenant_mismatch")
        #expect(try device.deviceRow() == before)
        #expect(try await app.ask("current").account == nil)
        #expect(app.story() == ["hidden", "nobody"])
        #expect(try await app.ask("signin carol correct horse carol").code == nil)
        try await app.wait("open carol")
    }

    // E20
    @Test("removing an account signs it out with a round, a broadcast and receipts")
    func removal() async throws {
        let (device, control, app) = try await deviceWithListener(showing: "ada")
        let sleeper = try Listener("sleeper", on: device)
        try await sleeper.start(showing: "ada")
        let session = try #require(app.sessions.first)
        sleeper.kill()
        let mark = app.mark
        let removal = try await device.user("remove", "ada", "--sign-out", "--bus", device.bus.address)
        #expect(removal.status == 0, "\(removal.errors)")
        try await device.expectAudit("signed-out", ["the user's removal"])
        try await app.expectCleanup(after: mark)
        try await control.wait(for: app, in: session, .finished)
        #expect(try await app.ask("signin ada correct horse ada").code == "authentication_failed")
        // The absent app is told of a user who no longer exists.
        try await control.wait(forAllBut: sleeper, in: session)
        let late = sleeper.mark
        try sleeper.start()
        try await sleeper.expectCleanup(after: late, isNewProcess: true)
        try await control.waitUntilComplete(session)
    }

    // E20
    @Test("apps that must clean up after a removed user see a number instead of the name")
    func removalAfterSignOut() async throws {
        let device = try await DeviceOnPrivateBus()
        let control = ControlApp(on: device)
        let app = try BrokerAdministration(bus: device.bus.bus)
        func owed() async throws -> [Account] {
            let answer = try await app.call(.getCurrentAccount, ["application": .string("org.example.holder")])
            return try SessionAnswer(answer).owed.compactMap(\.account)
        }
        for name in ["ada", "grace"] {
            try await control.signIn(name)
            _ = try await owed()
            try await control.application.signOutCurrent()
        }
        #expect(try await owed().map(\.username) == ["ada", "grace"])
        let removal = try await device.user("remove", "ada", "--bus", device.bus.address)
        #expect(removal.status == 0 && removal.errors.isEmpty, "\(removal.errors)")
        #expect(try await owed().map(\.username) == ["forgotten", "grace"])
        let elsewhere = try await device.user("remove", "grace", "--bus", "unix:path=/nonexistent/bus")
        #expect(elsewhere.status == 0 && elsewhere.errors.contains("the broker was not told"), "\(elsewhere.errors)")
        try await device.add("eve")
        device.killBroker()
        let later = try await device.user("remove", "eve", "--bus", "unix:path=/nonexistent/bus")
        #expect(later.status == 0 && later.errors.isEmpty, "\(later.errors)")
    }
}
