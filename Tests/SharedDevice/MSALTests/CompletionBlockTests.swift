import Basics
import DBus
import Dispatch
import MSAL
import NotifyCenterTestKit
import Synchronization
import Testing

/// The queues on which completion blocks were called.
final class Places: Sendable {
    /// A test sets the value of its queue.
    static let key = DispatchSpecificKey<String>()
    private let entries = Locked<[String: String]>([:])
    private let expected = Locked<[String: String]>([:])

    init() { DispatchQueue.main.setSpecific(key: Self.key, value: "main") }

    func note(_ request: String, _ worked: Bool) {
        let place = DispatchQueue.getSpecific(key: Self.key) ?? "some"
        entries.withLock { $0[request, default: ""] += worked ? place : "failed" }
    }

    /// Waits until the block was called, and expects that neither it nor an earlier one was called twice or elsewhere.
    func expect(_ request: String, on place: String) async throws {
        try await eventually("the block of \(request) is called") { entries.withLock { $0[request] } != nil }
        let wanted = expected.withLock { expected -> [String: String] in
            expected[request] = place
            return expected
        }
        let found = entries.withLock { $0 }
        #expect(found == wanted)
    }
}

@Suite("Completion blocks")
struct CompletionBlockTests {
    @Test("each block is called once, on the requested or the default queue")
    func queues() async throws {
        let device = try await DeviceOnPrivateBus()
        let app = try device.msalApplication()
        for queue in [nil, DispatchQueue(label: "own")] {
            queue?.setSpecific(key: Places.key, value: "own")
            let (main, some) = queue == nil ? ("main", "some") : ("own", "own")
            let places = Places()
            func on<Parameters: MSALParameters>(_ parameters: Parameters) -> Parameters {
                parameters.completionBlockQueue = queue
                return parameters
            }
            app.getDeviceInformation(with: on(MSALParameters())) { places.note("information", $0 != nil && $1 == nil) }
            try await places.expect("information", on: some)
            let interactive = MSALInteractiveTokenParameters(scopes: ["a"], webviewParameters: .typing("ada"))
            app.acquireToken(with: on(interactive)) { places.note("token", $0 != nil && $1 == nil) }
            try await places.expect("token", on: main)
            app.getCurrentAccount(with: on(MSALParameters())) { places.note("account", $0 != nil && $2 == nil) }
            try await places.expect("account", on: some)
            let accounts = MSALAccountEnumerationParameters()
            app.accountsFromDevice(for: on(accounts)) { places.note("accounts", $0?.count == 1 && $1 == nil) }
            try await places.expect("accounts", on: some)
            let account = try #require(try app.allAccounts().first)
            let silent = MSALSilentTokenParameters(scopes: ["a"], account: account)
            app.acquireTokenSilent(with: on(silent)) { places.note("silent", $0 != nil && $1 == nil) }
            try await places.expect("silent", on: some)
            app.signout(with: account, signoutParameters: on(MSALSignoutParameters())) {
                places.note("sign-out", $0 && $1 == nil)
            }
            try await places.expect("sign-out", on: main)
            app.acquireTokenSilent(with: on(silent)) { places.note("refused", $0 == nil && $1 != nil) }
            try await places.expect("refused", on: some)
            app.signout(with: account, signoutParameters: on(MSALSignoutParameters())) {
                places.note("not out", !$0 && $1 != nil)
            }
            try await places.expect("not out", on: main)
        }
    }

    @Test("parameters that are changed after the call have no effect")
    func snapshot() async throws {
        let device = try await DeviceOnPrivateBus()
        let app = try device.msalApplication()
        let account = try await app.signIn("ada").account
        let silent = MSALSilentTokenParameters(scopes: ["a"], account: account)
        let scopes = Locked<[String]?>(nil)
        app.acquireTokenSilent(with: silent) { result, _ in scopes.withLock { $0 = result?.scopes ?? [] } }
        silent.scopes = []
        try await eventually("the block") { scopes.withLock { $0 } != nil }
        #expect(scopes.withLock { $0 } == ["a"])
    }

    @MainActor
    private final class ViewModel {
        private(set) var name: String?
        private(set) var isShared: Bool?

        func load(_ app: MSALPublicClientApplication) {
            let parameters = MSALParameters()
            parameters.completionBlockQueue = .main
            app.getCurrentAccount(with: parameters) { account, _, _ in self.name = account?.username }
            app.getDeviceInformation(with: parameters) { information, _ in
                self.isShared = information?.deviceMode == .shared
            }
        }

        func sign(_ user: String, into app: MSALPublicClientApplication) async throws {
            let parameters = MSALInteractiveTokenParameters(scopes: ["a"], webviewParameters: .typing(user))
            name = try await app.acquireToken(with: parameters).account.username
            let (account, previous) = try await app.currentAccount(with: nil)
            #expect(account?.username == user && previous == nil)
        }
    }

    @Test("main actor code uses blocks and async functions in Swift 6 mode")
    func mainActor() async throws {
        let device = try await DeviceOnPrivateBus()
        let app = try device.msalApplication()
        // With Microsoft's own MSAL, the async form crashed if the account was nil (common-objc#1141).
        let accounts = try await app.getCurrentAccount(with: nil)
        #expect(accounts.0 == nil && accounts.1 == nil)
        let model = ViewModel()
        try await model.sign("ada", into: app)
        await model.load(app)
        try await eventually("its state is set") { await model.isShared == true }
        #expect(await model.name == "ada")
    }
}
