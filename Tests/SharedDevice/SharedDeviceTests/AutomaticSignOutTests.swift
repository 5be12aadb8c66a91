import DBus
import Foundation
import NotifyCenterTestKit
import SharedDevice
import Testing

@Suite("Automatic sign-outs")
struct AutomaticSignOutTests {
    private func configure(_ device: DeviceOnPrivateBus, _ settings: String) throws {
        try device.configure(#"{"sharedDeviceMode": true, "passwordSignIn": true, "# + settings + "}")
    }

    private func lastActivity(_ device: DeviceOnPrivateBus) throws -> Date {
        let attributes = try FileManager.default.attributesOfItem(atPath: "\(device.state)/last-activity")
        return try #require(attributes[.modificationDate] as? Date)
    }

    @Test("inactivity signs the user out, all apps are told, and the log has the reason")
    func inactivity() async throws {
        let device = try await DeviceOnPrivateBus(configuration: #""inactivityTimeout": 900"#)
        let follower = Follower(device.application("listener"))
        try await device.application().signIn("ada")
        try await follower.hears("ada")
        // Only now, because the time counts from the sign-in and the listener may be told late.
        try configure(device, #""inactivityTimeout": 0.3"#)
        try await follower.hears("-")
        try await device.expectAudit("signed-out", ["inactivity for 0.3 s"])
        // The same for a session that starts under this setting, and may end before its app has the response.
        _ = try? await device.application().signIn("grace")
        try await device.expectAudit("signed-out", ["inactivity for 0.3 s", "inactivity for 0.3 s"])
    }

    // S11
    @Test("sign-ins and reported activity count; account and token requests do not")
    func activity() async throws {
        let device = try await DeviceOnPrivateBus(configuration: #""inactivityTimeout": 900"#)
        let application = device.application()
        let account = try await application.signIn("ada").account
        var signedIn = Date.distantPast
        try await eventually("the time is kept") {
            // The file is created first, and its time is set a moment later.
            var status = stat()
            guard stat("\(device.state)/last-activity", &status) == 0 else { return false }
            signedIn = try lastActivity(device)
            return (status.st_mtim.tv_sec, status.st_mtim.tv_nsec) != (status.st_ctim.tv_sec, status.st_ctim.tv_nsec)
        }
        let parameters = SilentTokenParameters(scopes: [], account: account)
        // Longer than the minimum of one second between two writes.
        try await eventually("time passes") {
            _ = try await application.getCurrentAccount()
            _ = try await application.acquireTokenSilent(with: parameters)
            return Date().timeIntervalSince(signedIn) > 1.5
        }
        #expect(try lastActivity(device) == signedIn)
        application.noteActivity()
        try await eventually("the report counts") { try lastActivity(device) > signedIn }
        #expect(try await application.getCurrentAccount().current == account)
    }

    @Test("a broker that was down during inactivity signs out when it starts")
    func inactiveWhileDown() async throws {
        let device = try await DeviceOnPrivateBus(configuration: #""inactivityTimeout": 900"#)
        let application = device.application()
        try await application.signIn("ada")
        try await eventually("the time is kept") { (try? lastActivity(device)) != nil }
        // A restart alone does not sign out.
        device.killBroker()
        try await device.startBroker()
        #expect(try await application.getCurrentAccount().current?.username == "ada")
        device.killBroker()
        let hourAgo = Date(timeIntervalSinceNow: -3600)
        try device.backdate(to: hourAgo)
        try FileManager.default.setAttributes(
            [.modificationDate: hourAgo],
            ofItemAtPath: "\(device.state)/last-activity"
        )
        try await device.startBroker()
        try await eventually("ada is out") { try await application.getCurrentAccount().current == nil }
        try await device.expectAudit("signed-out", ["inactivity for 900 s"])
    }

    @Test("a broker that was down at the end of the shift signs out when it starts")
    func shiftEndWhileDown() async throws {
        let device = try await DeviceOnPrivateBus(starts: false)
        // Far from now, so that no shift ends during this test; a session from two days ago is older than one shift
        // end.
        let time = Calendar.current.dateComponents([.hour, .minute], from: Date(timeIntervalSinceNow: 12 * 3600))
        let end = String(format: "%02d:%02d", try #require(time.hour), try #require(time.minute))
        try configure(device, #""shiftEnds": ["\#(end)"]"#)
        try await device.startBroker()
        let follower = Follower(device.application("listener"))
        try await device.application().signIn("ada")
        try await follower.hears("ada")
        device.killBroker()
        try device.backdate(to: Date(timeIntervalSinceNow: -48 * 3600))
        try await device.startBroker()
        try await follower.hears("-")
        try await device.expectAudit("signed-out", ["shift end \(end)"])
        try await device.application().signIn("grace")
        try await follower.hears("grace")
    }

    @Test("a screen lock signs out, also on request or if it happened unseen")
    func screenLock() async throws {
        let device = try await DeviceOnPrivateBus(starts: false)
        try configure(device, #""signOutOnScreenLock": true"#)
        device.brokerArguments = ["--login-bus", device.bus.address]
        try await device.startBroker()
        let broker = try #require(device.broker)
        // logind appears later than the broker.
        try await eventually("its absence is told") { broker.errorText.contains("no logind") }
        var login: FakeLogin? = try await FakeLogin(device.bus)
        try await eventually("it is followed") { broker.errorText.contains("following login sessions") }
        let follower = Follower(device.application("listener"))
        let application = device.application()
        try await application.signIn("ada")
        try await follower.hears("ada")
        // The logout and the end of logind must not sign out.
        try login?.logOut()
        login = nil
        try await eventually("its end is told") { broker.errorText.components(separatedBy: "no logind").count >= 3 }
        login = try await FakeLogin(device.bus)
        try await eventually("it is followed again") {
            broker.errorText.components(separatedBy: "following login sessions").count >= 3
        }
        #expect(try await application.getCurrentAccount().current?.username == "ada")
        try login?.setLocked(true)
        try await follower.hears("-")
        try await device.expectAudit("signed-out", ["screen lock"])
        try login?.setLocked(false)
        try await application.signIn("grace")
        try await follower.hears("grace")
        try login?.requestLock()
        try await follower.hears("-")
        try await application.signIn("ada")
        try await follower.hears("ada")
        device.killBroker()
        try login?.setLocked(true)
        try await device.startBroker()
        try await follower.hears("-")
        try await device.expectAudit("signed-out", ["screen lock", "screen lock", "screen lock"])
        withExtendedLifetime(login) {}
    }

    @Test("many new sessions need few requests, and a later lock is noticed")
    func manySessions() async throws {
        let device = try await DeviceOnPrivateBus(starts: false)
        try configure(device, #""signOutOnScreenLock": true"#)
        device.brokerArguments = ["--login-bus", device.bus.address]
        try await device.startBroker()
        let broker = try #require(device.broker)
        let login = try await FakeLogin(device.bus)
        try await eventually("it is followed") { broker.errorText.contains("following login sessions") }
        let application = device.application()
        try await application.signIn("ada")
        for _ in 0..<5000 { try login.announce() }
        try login.setLocked(true)
        try await eventually("ada is out") { try await application.getCurrentAccount().current == nil }
        #expect(login.listCount < 2500)
    }

    @Test("logind signals from other processes are ignored")
    func spoofedLogin() async throws {
        let device = try await DeviceOnPrivateBus(starts: false)
        try configure(device, #""signOutOnScreenLock": true, "signOutOnLogout": true"#)
        device.brokerArguments = ["--login-bus", device.bus.address]
        try await device.startBroker()
        let broker = try #require(device.broker)
        let login = try await FakeLogin(device.bus)
        try await eventually("it is followed") { broker.errorText.contains("following login sessions") }
        let application = device.application()
        try await application.signIn("ada")
        // Sent to each connection directly, so that no match rule filters it.
        let spoofer = try DBusConnection.open(device.bus.bus)
        let names =
            try await spoofer.call(
                try DBusMessage.methodCall(
                    destination: "org.freedesktop.DBus",
                    path: "/org/freedesktop/DBus",
                    interface: "org.freedesktop.DBus",
                    member: "ListNames"
                )
            ).first?.stringsValue ?? []
        for name in names where name.hasPrefix(":") {
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
    }
}
