import Basics
import DBus
import Foundation
import NotifyCenterTestKit
import SharedDevice
import Synchronization
import Testing

@Suite("Automatic sign-outs")
struct AutomaticSignOutTests {
    /// A device whose broker follows a fake logind.
    private func deviceWithLogin(_ configuration: String) async throws -> (DeviceOnPrivateBus, FakeLogin) {
        let device = try await DeviceOnPrivateBus(starts: false, configuration: configuration)
        device.brokerArguments = ["--login-bus", device.bus.address]
        try await device.startBroker()
        // logind appears later than the broker.
        try await expect("no logind", 1, on: device)
        let login = try await FakeLogin(device.bus)
        try await expect("following login sessions", 1, on: device)
        return (device, login)
    }

    private func expect(_ text: String, _ count: Int, on device: DeviceOnPrivateBus) async throws {
        let broker = try #require(device.broker)
        try await eventually("“\(text)” is told") { broker.errorText.components(separatedBy: text).count > count }
    }

    @Test("inactivity signs the user out, all apps are told, and the log has the reason")
    func inactivity() async throws {
        let device = try await DeviceOnPrivateBus(configuration: #""inactivityTimeout": 900"#)
        let follower = ControlApp(on: device, name: "listener")
        try await device.application().signIn("ada")
        try await follower.hears("ada")
        // Set only now, because the time counts from the sign-in and the listener may be told late.
        try device.configure(#"{"sharedDeviceMode": true, "passwordSignIn": true, "inactivityTimeout": 0.3}"#)
        try await follower.hears("-")
        try await device.expectAudit("signed-out", ["inactivity for 0.3 s"])
        // The same for a session that starts under this setting, and may end before its app has the response.
        _ = try? await device.application().signIn("grace")
        try await device.expectAudit("signed-out", ["inactivity for 0.3 s", "inactivity for 0.3 s"])
    }

    @Test("an app hears the warning before an inactive session ends, until activity")
    func warning() async throws {
        let device = try await DeviceOnPrivateBus(configuration: #""inactivityTimeout": 900, "signOutWarning": 600"#)
        let application = device.application()
        let heard = Locked<[SessionEnd?]>([])
        let task = Task { for await end in application.sessionWarnings { heard.withLock { $0.append(end) } } }
        defer { task.cancel() }
        try await eventually("the first element is there") { heard.withLock { $0 } == [nil] }
        // The warning takes half of the 900 seconds.
        try await device.signInAndRestart(idleFor: 500)
        try await eventually("the warning is heard") { heard.withLock { $0.count } == 2 }
        let end = try #require(await application.getDeviceInformation().sessionEnd)
        #expect(end.reason == .inactivity && end.isSoon)
        #expect((300...400).contains(end.at.timeIntervalSinceNow))
        #expect(heard.withLock { $0.last } == .some(end))
        let status = try await device.command("status", "--json").output
        #expect(status.contains(#""isSoon" : true"#) && status.contains(#""reason" : "inactivity""#), "\(status)")
        application.noteActivity()
        try await eventually("the warning is taken back") { heard.withLock { $0.last } == .some(nil) }
        let next = try #require(await application.getDeviceInformation().sessionEnd)
        #expect(!next.isSoon && next.at > end.at)
    }

    @Test("a screen lock signs out, also on request or if it happened unseen")
    func screenLock() async throws {
        let (device, first) = try await deviceWithLogin(#""signOutOnScreenLock": true"#)
        let follower = ControlApp(on: device, name: "listener")
        let application = device.application()
        try await application.signIn("ada")
        try await follower.hears("ada")
        // The logout and the end of logind must not sign out.
        try first.logOut()
        first.leave()
        try await expect("no logind", 2, on: device)
        let login = try await FakeLogin(device.bus)
        try await expect("following login sessions", 2, on: device)
        #expect(try await application.getCurrentAccount().current?.username == "ada")
        try login.setLocked(true)
        try await follower.hears("-")
        try await device.expectAudit("signed-out", ["screen lock"])
        try login.setLocked(false)
        try await application.signIn("grace")
        try await follower.hears("grace")
        try login.requestLock()
        try await follower.hears("-")
        try await application.signIn("ada")
        try await follower.hears("ada")
        device.killBroker()
        try login.setLocked(true)
        try await device.startBroker()
        try await follower.hears("-")
        try await device.expectAudit("signed-out", ["screen lock", "screen lock", "screen lock"])
        withExtendedLifetime(login) {}
    }

    @Test("logind signals of others are ignored, and a lock after 5000 sessions is noticed")
    func spoofedLogin() async throws {
        let (device, login) = try await deviceWithLogin(#""signOutOnScreenLock": true, "signOutOnLogout": true"#)
        let application = device.application()
        try await application.signIn("ada")
        // Sent to each connection directly, so that no match rule filters it.
        let spoofer = try DBusConnection.open(device.bus.bus)
        for name in try await device.connections(spoofer) {
            let signal = try DBusMessage.signal(
                path: "/org/freedesktop/login1/session/_31",
                interface: "org.freedesktop.login1.Session",
                member: "Lock",
                destination: name
            )
            try spoofer.send(signal)
        }
        // The broker sees later messages after the spoofed ones.
        try await spoofer.flush()
        try login.logOut()
        try await eventually("ada is out") { try await application.getCurrentAccount().current == nil }
        try await device.expectAudit("signed-out", ["logout"])
        try await application.signIn("grace")
        // Many new sessions need few requests, and a later lock is noticed.
        for _ in 0..<5000 { try login.announce() }
        try login.setLocked(true)
        try await eventually("grace is out") { try await application.getCurrentAccount().current == nil }
        try await device.expectAudit("signed-out", ["logout", "screen lock"])
        #expect(login.listCount < 2500)
    }
}
