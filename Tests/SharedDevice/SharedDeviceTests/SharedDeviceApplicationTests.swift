import DBus
import Dispatch
import NotifyCenter
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Testing

@Suite("An app and the real broker", .timeLimit(.minutes(10)))
struct SharedDeviceApplicationTests {
    @Test("without a bus the mode is unknown and requests fail")
    func noBus() async throws {
        let directory = try TemporaryDirectory("no-bus")
        let application = SharedDeviceApplication(
            identifier: "org.example.nowhere",
            bus: .address("unix:path=/nowhere/bus"),
            stateDirectory: directory.path
        )
        let information = await application.getDeviceInformation()
        #expect(information.deviceMode == .unknown && information.problem?.code == .brokerUnavailable)
        #expect(await code { _ = try await application.getCurrentAccount() } == .brokerUnavailable)
        #expect(await code { try await application.signIn("ada") } == .brokerUnavailable)
    }

    // The app crashes after it has learned of an account and before it follows changes.
    @Test("an app that got an account with a token or by asking must clean up after a crash")
    func heardOtherwise() async throws {
        let device = try await DeviceOnPrivateBus()
        let control = device.application("control")
        try await device.application("signer").signIn("ada")
        _ = try await device.application("asker").getCurrentAccount()
        let account = try #require(try await control.getCurrentAccount().current)
        let parameters = SilentTokenParameters(scopes: [], account: account)
        _ = try await device.application("silent").acquireTokenSilent(with: parameters)
        try await control.signOutCurrent()
        try await control.signIn("grace")
        for name in ["signer", "asker", "silent"] {
            for await change in device.application(name).accountChanges {
                #expect(change.previousAccounts == [account], "\(name)")
                break
            }
        }
    }

    @Test("apps follow the account after a restart of the bus with another account")
    func busRestart() async throws {
        let device = try await DeviceOnPrivateBus()
        let (follower, other) = (ControlApp(on: device, name: "one"), device.application("other"))
        try await other.signIn("ada")
        try await follower.hears("ada")
        try device.bus.restart()
        try await eventually("the broker is back on the bus") {
            await other.getDeviceInformation().deviceMode == .shared
        }
        try await other.signOutCurrent()
        try await follower.hears("-")
    }

    @Test("a text that the bus refuses is an invalid request and blocks no receipt")
    func textsWithNUL() async throws {
        let device = try await DeviceOnPrivateBus()
        let (control, app) = (device.application("control"), device.application())
        #expect(await code { try await control.signIn("ada\0") } == .invalidRequest)
        try await control.signIn("ada")
        _ = try await app.getCurrentAccount()
        let account = try #require(try await control.getCurrentAccount().current)
        let session = try await control.signout(with: account).session
        let change = try await app.reportCurrentAccount().change
        try await app.cleanupDone(change, detail: "12\0 rows")
        // Also for a process that finds the receipt in the record.
        #expect(try await device.application().getCurrentAccount().previous == nil)
        let apps = try await control.cleanupReport(ofSession: session)?.apps ?? []
        let entry = try #require(apps.first { $0.identifier == app.identifier })
        #expect(entry.progress == .finished && entry.detail == "12 rows")
    }

    @Test("an unknown kind of refusal is a failure of the broker, not an outage")
    func unknownRefusal() {
        let name = "org.notifycenter.SharedDevice1.Error.not_on_sundays"
        let refusal = DBusError(.refused, name: name, message: "it is Sunday", attempted: "call")
        let error = SharedDeviceError(refusal, attempted: "sign in")
        #expect(error.code == .brokerFailed && error.message == "it is Sunday [not_on_sundays]")
    }

    @Test("an app that may not own its bus name still follows the account")
    func deniedName() async throws {
        let bus = try PrivateBus(PrivateBus.Options(denials: [#"<deny own="org.example.Denied"/>"#]))
        let device = try await DeviceOnPrivateBus(bus: bus)
        let app = device.application(busName: "org.example.Denied")
        #expect(await app.getDeviceInformation().deviceMode == .shared)
        #expect(app.busNameProblem?.code == .notPermitted)
        try await app.signIn("ada")
        #expect(try await app.getCurrentAccount().current?.username == "ada")
    }

    @Test("completion blocks are called once, on the requested queue")
    func completionBlocks() async throws {
        let device = try await DeviceOnPrivateBus()
        let application = device.application()
        let (queue, places) = (DispatchQueue(label: "completion"), Places())
        queue.setSpecific(key: Places.key, value: "own")
        let parameters = SharedDeviceParameters(completionBlockQueue: queue)
        application.getDeviceInformation(with: parameters) {
            places.note("information", $0?.deviceMode == .shared && $1 == nil)
        }
        try await places.expect("information", on: "own")
        var interactive = InteractiveTokenParameters(scopes: []) { _ in
            Credentials(username: "ada", password: "correct horse ada")
        }
        interactive.completionBlockQueue = queue
        application.acquireToken(with: interactive) { places.note("token", $0?.account.username == "ada" && $1 == nil) }
        try await places.expect("token", on: "own")
        let account = try #require(try await application.getCurrentAccount().current)
        var silent = SilentTokenParameters(scopes: [], account: account)
        silent.completionBlockQueue = queue
        application.acquireTokenSilent(with: silent) { places.note("silent", $0 != nil && $1 == nil) }
        try await places.expect("silent", on: "own")
        application.signout(with: account, signoutParameters: SignoutParameters(completionBlockQueue: queue)) {
            places.note("sign-out", $0 && $1 == nil)
        }
        try await places.expect("sign-out", on: "own")
        application.getCurrentAccount(with: parameters) {
            places.note("account", $0 == nil && $1 == account && $2 == nil)
        }
        try await places.expect("account", on: "own")
    }
}
