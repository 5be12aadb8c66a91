import Basics
import DBus
import Dispatch
import NotifyCenter
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Synchronization
import Testing

@Suite("An app and the real broker", .timeLimit(.minutes(10)))
struct SharedDeviceApplicationTests {
    @Test("sign-in gives another app the account and a token; sign-out ends both")
    func globalSignInAndOut() async throws {
        let device = try await DeviceOnPrivateBus()
        let (one, other) = (device.application("one"), device.application("other"))
        #expect(await one.getDeviceInformation().deviceMode == .shared)
        #expect(await one.getDeviceInformation().organization == "Contoso")
        let result = try await one.signIn("ada")
        #expect(result.account.username == "ada" && result.account.displayName == "Ada")
        #expect(result.scopes == ["orders.read"])
        let seen = try await other.getCurrentAccount()
        #expect(seen.current == result.account && seen.previous == nil)
        let parameters = SilentTokenParameters(scopes: ["orders.read"], account: result.account)
        let silent = try await other.acquireTokenSilent(with: parameters)
        #expect(silent.accessToken != result.accessToken, "each app has a token of its own")
        #expect(try await other.acquireTokenSilent(with: parameters).accessToken == silent.accessToken)
        var refresh = parameters
        refresh.forceRefresh = true
        #expect(try await other.acquireTokenSilent(with: refresh).accessToken != silent.accessToken)
        try await other.signout(with: result.account)
        let after = try await one.getCurrentAccount()
        #expect(after.current == nil)
        let told = try await other.getCurrentAccount()
        #expect(told.current == nil && told.previous == result.account)
        #expect(await code { _ = try await one.acquireTokenSilent(with: parameters) } == .noCurrentAccount)
    }

    @Test("a request against the device's rules fails with a code and changes nothing")
    func refusals() async throws {
        let device = try await DeviceOnPrivateBus()
        let application = device.application()
        let stranger = Account(identifier: "nobody.here", username: "nobody")
        #expect(await code { try await application.signout(with: stranger) } == .noCurrentAccount)
        #expect(await code { try await application.signIn("ada", password: "wrong") } == .authenticationFailed)
        #expect(await code { try await application.signIn("mallory") } == .authenticationFailed)
        let canceled = InteractiveTokenParameters(scopes: []) { _ in nil }
        #expect(await code { _ = try await application.acquireToken(with: canceled) } == .userCanceled)
        let ada = try await application.signIn("ada").account
        #expect(await code { try await application.signIn("grace") } == .accountAlreadySignedIn)
        #expect(await code { try await application.signIn("ada") } == .accountAlreadySignedIn)
        #expect(await code { try await application.signout(with: stranger) } == .currentAccountMismatch)
        let silent = SilentTokenParameters(scopes: [], account: stranger)
        #expect(await code { _ = try await application.acquireTokenSilent(with: silent) } == .currentAccountMismatch)
        #expect(try await application.getCurrentAccount().current == ada)
    }

    // E11, D9
    @Test("without a broker or bus the mode is unknown and requests fail")
    func noBroker() async throws {
        let device = try await DeviceOnPrivateBus(starts: false)
        let lonely = device.application()
        let nowhere = SharedDeviceApplication(
            identifier: "org.example.nowhere",
            bus: .address("unix:path=/nowhere/bus"),
            stateDirectory: device.directory.path
        )
        for application in [lonely, nowhere] {
            let information = await application.getDeviceInformation()
            #expect(information.deviceMode == .unknown && information.problem?.code == .brokerUnavailable)
            #expect(await code { _ = try await application.getCurrentAccount() } == .brokerUnavailable)
            #expect(await code { try await application.signIn("ada") } == .brokerUnavailable)
        }
        try await device.startBroker()
        #expect(await lonely.getDeviceInformation().deviceMode == .shared)
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
        let (one, other) = (device.application("one"), device.application("other"))
        let log = Locked<[String]>([])
        let following = Task {
            for await change in one.accountChanges {
                log.withLock { $0.append(change.current?.username ?? "-") }
                try await one.cleanupDone(change)
            }
        }
        defer { following.cancel() }
        try await other.signIn("ada")
        try await eventually("it follows") { log.withLock { $0.last } == "ada" }
        device.bus.stop()
        try device.bus.start()
        try await eventually("the broker is back on the bus") {
            await other.getDeviceInformation().deviceMode == .shared
        }
        try await other.signOutCurrent()
        try await eventually("the sign-out is heard") { log.withLock { $0.last } == "-" }
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
        let app = SharedDeviceApplication(
            identifier: "org.example.app",
            bus: bus.bus,
            busName: "org.example.Denied",
            stateDirectory: "\(device.directory.path)/apps/app"
        )
        #expect(await app.getDeviceInformation().deviceMode == .shared)
        #expect(app.busNameProblem?.code == .notPermitted)
        try await app.signIn("ada")
        #expect(try await app.getCurrentAccount().current?.username == "ada")
    }

    @Test("completion blocks are called once, on the requested queue")
    func completionBlocks() async throws {
        let device = try await DeviceOnPrivateBus()
        let application = device.application()
        let key = DispatchSpecificKey<Bool>()
        let queue = DispatchQueue(label: "completion")
        queue.setSpecific(key: key, value: true)
        let parameters = SharedDeviceParameters(completionBlockQueue: queue)
        let log = Locked<[String]>([])
        @Sendable func note(_ text: String) {
            log.withLock { $0.append(DispatchQueue.getSpecific(key: key) == true ? text : "\(text) elsewhere") }
        }
        application.getDeviceInformation(with: parameters) { information, error in
            note(information?.deviceMode == .shared && error == nil ? "shared" : "wrong")
        }
        try await eventually("the first block") { log.withLock { $0 } == ["shared"] }
        var interactive = InteractiveTokenParameters(scopes: []) { _ in
            Credentials(username: "ada", password: "correct horse ada")
        }
        interactive.completionBlockQueue = queue
        application.acquireToken(with: interactive) { result, error in
            note(result?.account.username ?? "\(String(describing: error))")
        }
        try await eventually("the second block") { log.withLock { $0.last } == "ada" }
        let account = try #require(try await application.getCurrentAccount().current)
        var silent = SilentTokenParameters(scopes: [], account: account)
        silent.completionBlockQueue = queue
        application.acquireTokenSilent(with: silent) { result, _ in note(result == nil ? "wrong" : "token") }
        try await eventually("the third block") { log.withLock { $0.last } == "token" }
        application.signout(with: account, signoutParameters: SignoutParameters(completionBlockQueue: queue)) {
            success,
            error in note(success && error == nil ? "out" : "wrong")
        }
        try await eventually("the fourth block") { log.withLock { $0.last } == "out" }
        application.getCurrentAccount(with: parameters) { current, previous, error in
            note("\(current?.username ?? "-") \(previous?.username ?? "-") \(error?.code.description ?? "-")")
        }
        try await eventually("the fifth block") { log.withLock { $0.last } == "- ada -" }
        #expect(log.withLock { $0.count } == 5)
    }
}
