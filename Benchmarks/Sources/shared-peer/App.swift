import NotifyCenter
import SharedDevice

/// The roles. Each runs apart from the main thread, like an app's work in the background.
struct App: Sendable {
    private static let scopes = ["bench"]
    /// Each follower posts it when it has the account of a session.
    private static let holds: NotificationName = "BenchHolds"

    private let application: SharedDeviceApplication
    private let center = DarwinNotifyCenter()

    init(identifier: String, stateDirectory: String) {
        application = SharedDeviceApplication(identifier: identifier, stateDirectory: stateDirectory)
    }

    /// Follows the account.
    @concurrent
    func follow() async {
        var known: UInt64?
        var isReady = false
        for await change in changes {
            await cleanUp(after: change)
            if change.current != nil, change.epoch != known {
                known = change.epoch
                await must("post") { try center.post(Self.holds) }
            }
            if !isReady { say("ready") }
            isReady = true
        }
    }

    /// Signs in and stays. It is ready when `others` apps have the account.
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
        // The app that signs out has to clean up like any other.
        let following = Task { for await change in changes { await cleanUp(after: change) } }
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

    /// Asks for the current account, again and again.
    @concurrent
    func askForAccount(count: Int) async {
        say("ready")
        let median = await medianTime(count) {
            let start = now()
            let account = await must("ask for the account") { try await application.getCurrentAccount().current }
            let elapsed = now() - start
            guard account != nil else { end("nobody is signed in") }
            return elapsed
        }
        say("result count=\(count) median-ns=\(median)")
    }

    /// Asks for a token that the broker has, again and again.
    @concurrent
    func askForToken(count: Int) async {
        let account = await must("ask for the account") { try await application.getCurrentAccount().current }
        guard let account else { end("nobody is signed in") }
        let parameters = SilentTokenParameters(scopes: Self.scopes, account: account)
        say("ready")
        let median = await medianTime(count) {
            let start = now()
            _ = await must("get a token") { try await application.acquireTokenSilent(with: parameters) }
            return now() - start
        }
        say("result count=\(count) median-ns=\(median)")
    }

    private var changes: AccountChanges {
        application.accountChanges { end("follow the account: \($0)") }
    }

    /// There is nothing to delete.
    private func cleanUp(after change: AccountChange) async {
        guard change.previous != nil else { return }
        await must("report a cleanup") {
            try await application.cleanupBegan(change)
            try await application.cleanupDone(change)
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
