import NotifyCenter
import SharedDevice
import Synchronization

/// The roles. Each runs off the main thread, like an app's background work.
struct App: Sendable {
    private static let scopes = ["bench"]
    /// Posted by each follower when it has the account of a session.
    private static let holds: NotificationName = "BenchHolds"

    private let application: SharedDeviceApplication
    private let center = DarwinNotifyCenter()

    init(identifier: String, stateDirectory: String) {
        application = SharedDeviceApplication(identifier: identifier, stateDirectory: stateDirectory)
    }

    @concurrent
    func follow() async {
        let isReady = Atomic(false)
        await follow { account in
            if account != nil { await must("post") { try center.post(Self.holds) } }
            if !isReady.exchange(true, ordering: .relaxed) { say("ready") }
        }
    }

    /// Signs in and stays signed in. Prints `ready` when `others` apps have the account.
    @concurrent
    func stay(_ credentials: Credentials, others: Int) async {
        let (holders, observation) = await observeHolders()
        defer { observation.cancel() }
        _ = await signIn(credentials)
        await wait(for: others, of: holders)
        say("ready")
        try? await Task.sleep(for: .seconds(86_400))
    }

    /// Signs in and out, and measures the time from each sign-out to the last receipt.
    @concurrent
    func signOut(_ credentials: Credentials, count: Int, others: Int) async {
        let (holders, observation) = await observeHolders()
        defer { observation.cancel() }
        // The app that signs out must clean up like any other.
        let following = Task { await follow { _ in } }
        defer { following.cancel() }
        let parameters = SignoutParameters(cleanupDeadline: .seconds(30))
        say("ready")
        let median = await medianTime(count) {
            let account = await signIn(credentials)
            await wait(for: others, of: holders)
            let start = now()
            let result = await must("sign out") {
                try await application.signout(with: account, signoutParameters: parameters)
            }
            let elapsed = now() - start
            guard let cleanup = result.cleanup, cleanup.isComplete, cleanup.apps.count == others + 1 else {
                end("the round of \(others + 1) apps was not complete: \(String(describing: result.cleanup))")
            }
            return elapsed
        }
        say("result count=\(count) median-ns=\(median)")
    }

    /// Repeatedly requests the current account.
    @concurrent
    func askForAccount(count: Int) async {
        say("ready")
        let median = await medianTime(count) {
            let start = now()
            let account = await must("ask for the account") { try await application.getCurrentAccount().current }
            let elapsed = now() - start
            guard account != nil else { end("no account is signed in") }
            return elapsed
        }
        say("result count=\(count) median-ns=\(median)")
    }

    /// Repeatedly requests a token that the broker has cached.
    @concurrent
    func askForToken(count: Int) async {
        let account = await must("ask for the account") { try await application.getCurrentAccount().current }
        guard let account else { end("no account is signed in") }
        let parameters = SilentTokenParameters(scopes: Self.scopes, account: account)
        say("ready")
        let median = await medianTime(count) {
            let start = now()
            _ = await must("get a token") { try await application.acquireTokenSilent(with: parameters) }
            return now() - start
        }
        say("result count=\(count) median-ns=\(median)")
    }

    /// Follows the account as an app does, with a cleanup step that has nothing to delete. `show` gets the user whose
    /// data may be shown.
    private func follow(_ show: @escaping @Sendable (Account?) async -> Void) async {
        let cleanup = CleanupCoordinator()
        await must("register a step") { try cleanup.register("nothing") { _ in } }
        await application.follow(cleanup) { state in
            switch state {
            case .open(let account): await show(account)
            case .nobody: await show(nil)
            case .hidden(.cleanupFailed), .hidden(.unknown), .hidden(.appFailed): end("follow the account: \(state)")
            case .hidden: break
            }
        }
    }

    private func signIn(_ credentials: Credentials) async -> Account {
        await must("sign in") {
            try await application.acquireToken(
                with: InteractiveTokenParameters(scopes: Self.scopes) { _ in credentials }
            )
        }
        .account
    }

    /// A stream with an element for each follower that has the account.
    private func observeHolders() async -> (AsyncStream<Void>, NotificationObservation) {
        let (stream, continuation) = AsyncStream<Void>.makeStream()
        let observation = await must("observe") {
            try await center.observe(Self.holds, delivery: .immediate) { _ in continuation.yield() }
        }
        return (stream, observation)
    }

    private func wait(for count: Int, of holders: AsyncStream<Void>) async {
        var iterator = holders.makeAsyncIterator()
        for _ in 0..<count { _ = await iterator.next() }
    }
}
