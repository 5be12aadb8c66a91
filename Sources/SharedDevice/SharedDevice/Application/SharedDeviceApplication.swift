import Basics
import DBus
import Dispatch
import FoundationEssentials
public import NotifyCenter
import Synchronization

/// An app on a shared device: gets the current account, signs in and out for the whole device, and follows changes.
///
/// Create one per app and keep it. All functions may be called from any thread and task. A call to the broker waits at
/// most 25 seconds for the response, in addition to a wait that its parameters name.
///
/// Any request may also fail with ``SharedDeviceError/Code/invalidRequest`` if an argument is malformed, for instance
/// contains U+0000. It may fail with ``SharedDeviceError/Code/brokerFailed`` if the broker cannot write to its disk, is
/// deleting this app's overdue data, or responds in a form that this version does not know.
///
/// ```swift
/// let application = SharedDeviceApplication(identifier: "org.example.orders")
/// for await change in application.accountChanges {
///     stopWork()
///     for account in change.previousAccounts { try deleteData(of: account) }
///     try await application.cleanupDone(change)
///     show(change.current)
/// }
/// ```
public final class SharedDeviceApplication: Sendable {
    /// The app's identity, which names its record of whose data it holds.
    public let identifier: String
    @_spi(Extensions) public let stateDirectory: String
    let broker: BrokerClient
    let keeper: SessionKeeper
    private let lastActivity = Locked<ContinuousClock.Instant?>(nil)

    /// Creates an app. It connects to the bus with its first request.
    ///
    /// - Parameters:
    ///   - identifier: the app's identifier, in reverse DNS.
    ///   - bus: the bus of the broker; by default the environment's choice.
    ///   - busName: a bus name that this app owns while it follows changes, and by which the bus can start it to clean
    ///     up. It is the name in the app's manifest and in its D-Bus service file. A second process of the app runs
    ///     without it; so does a process to which the bus's policy refuses it (``busNameProblem``).
    ///   - stateDirectory: the directory of the record; `nil` means `identifier` in `$XDG_STATE_HOME`
    ///     (`~/.local/state`). It must outlast the user data of the app.
    public init(
        identifier: String,
        bus: Bus = .fromEnvironment,
        busName: String? = nil,
        stateDirectory: String? = nil
    ) {
        self.identifier = identifier
        broker = BrokerClient(bus: bus, ownName: busName)
        let base = Self.baseDirectory("XDG_STATE_HOME", ".local/state")
        self.stateDirectory = stateDirectory ?? "\(base)/\(identifier)"
        keeper = SessionKeeper(
            application: identifier,
            broker: broker,
            store: SessionStore(path: "\(self.stateDirectory)/shared-device-sessions.json")
        )
    }

    /// A base directory of the XDG specification. A relative path in the variable is ignored: it would give each
    /// working directory other files.
    static func baseDirectory(_ variable: String, _ standard: String) -> String {
        let base = ProcessEnvironment.value(variable).flatMap { $0.hasPrefix("/") ? $0 : nil }
        return base ?? "\(ProcessEnvironment.homeDirectory ?? ".")/\(standard)"
    }

    // MARK: The device

    /// Returns whether the device is shared. If the broker does not respond, the mode is ``DeviceMode/unknown``, never
    /// ``DeviceMode/personal``; ``DeviceInformation/problem`` has the reason.
    public func getDeviceInformation() async -> DeviceInformation {
        do throws(SharedDeviceError) {
            return DeviceInformation(
                try await broker.call(.getDeviceInformation, attempted: "get the device's information")
            )
        } catch {
            return DeviceInformation([:], problem: error)
        }
    }

    // MARK: The account

    /// Returns the current account, and the account that this function returned at the last call, as in MSAL.
    ///
    /// Beyond MSAL, the previous account is returned again until the app reports that its data is deleted
    /// (``cleanupDone(_:detail:)``). After that nothing of it is kept, not even its name. A failed request changes
    /// nothing.
    ///
    /// - Throws: ``SharedDeviceError/Code/brokerUnavailable``, ``SharedDeviceError/Code/appNotEligible``,
    ///   ``SharedDeviceError/Code/recordUnusable``. Cancelling the task does not end the wait.
    public func getCurrentAccount() async throws(SharedDeviceError) -> (current: Account?, previous: Account?) {
        let report = try await keeper.report()
        return (report.change.current, report.previous)
    }

    /// Like ``getCurrentAccount()``, together with the pending cleanups.
    @_spi(Extensions) public func reportCurrentAccount() async throws(SharedDeviceError) -> AccountReport {
        try await keeper.report()
    }

    /// Returns the current account. Unlike ``getCurrentAccount()`` it does not count as a report: the next call of that
    /// function is unaffected.
    @_spi(Extensions) public func currentAccount() async throws(SharedDeviceError) -> Account? {
        try await keeper.current()
    }

    /// ``accountChanges(onFailure:)`` without a report of failures.
    public var accountChanges: AccountChanges { accountChanges { _ in } }

    /// The changes of the device's account since this app was last told. `onFailure` is called, on the iterating task,
    /// after each failed request. The next request follows after a second, or earlier if the broker returns.
    public func accountChanges(onFailure: @escaping @Sendable (SharedDeviceError) -> Void) -> AccountChanges {
        AccountChanges(keeper: keeper, broker: broker, onFailure: onFailure)
    }

    /// Whether the session is about to end by itself, or the screen to be locked, so that the app can warn the person.
    /// Follow it in a task of its own.
    ///
    /// ```swift
    /// for await end in application.sessionWarnings {
    ///     guard let end else { hideNotice(); continue }
    ///     showNotice(until: end.at, locks: end.locks, canStay: end.reason == .inactivity)
    /// }
    /// ```
    ///
    /// ``noteActivity()`` moves the end after inactivity, and no other end. A program that only warns people does not
    /// get the account, and owes no cleanup.
    public var sessionWarnings: SessionWarnings { SessionWarnings(broker: broker) }

    /// Reports that the app has begun to delete the data of `change.previousAccounts`, for display to people who wait.
    /// Returns when the report is queued for sending; it has no response.
    ///
    /// - Throws: ``SharedDeviceError/Code/brokerUnavailable`` if there is no bus.
    public func cleanupBegan(_ change: AccountChange) async throws(SharedDeviceError) {
        try await keeper.tellBegun(change)
    }

    /// Reports that the data of `change.previousAccounts` is deleted from disk and screen: the receipt that the
    /// broker's ledger waits for. The app is told of this data again only if another process of the app ends during the
    /// cleanup without a report.
    ///
    /// On return the report is on this app's disk. The broker gets it at once, or as soon as it responds again.
    ///
    /// - Parameters:
    ///   - change: the change after which the app has cleaned up.
    ///   - detail: the amount of deleted data, for people who read the report; no names.
    /// - Throws: ``SharedDeviceError/Code/recordUnusable``: the next start is told of the change again.
    ///   ``SharedDeviceError/Code/appNotEligible`` or ``SharedDeviceError/Code/brokerFailed`` if the broker refuses the
    ///   report; the next request sends it again.
    public func cleanupDone(_ change: AccountChange, detail: String? = nil) async throws(SharedDeviceError) {
        try await cleanupDone(change, detail: detail, took: nil)
    }

    /// - Parameter took: the time since the deletion began; `nil` if it is unknown.
    package func cleanupDone(_ change: AccountChange, detail: String?, took: Duration?) async throws(SharedDeviceError)
    {
        // The broker withheld the account until now, or does not count the cleanup. A new request makes the app learn
        // of it.
        if try await keeper.cleaned(change, detail: detail, took: took) { broker.nudge() }
    }

    /// Like ``cleanupDone(_:detail:)``, for an app that has continued as if it had cleaned up. Does nothing under a
    /// strict policy, which demands an explicit report.
    @_spi(Extensions) public func cleanupImplied(_ change: AccountChange) async throws(SharedDeviceError) {
        _ = try await keeper.cleaned(change, detail: "implied: the app went on to its next request", isImplied: true)
    }

    /// Reports that the cleanup after `change.previousAccounts` failed. The cleanup stays pending, and the next request
    /// reports the change again.
    ///
    /// - Parameters:
    ///   - change: the change after which the app has tried to clean up.
    ///   - reason: the reason, for the administrator who reads the report; no names.
    /// - Throws: ``SharedDeviceError/Code/brokerUnavailable``, ``SharedDeviceError/Code/appNotEligible``.
    public func cleanupFailed(_ change: AccountChange, reason: String) async throws(SharedDeviceError) {
        try await keeper.tellFailed(change, reason: reason)
    }

    /// The number of account change broadcasts that were ignored because the broker did not send them.
    public var ignoredBroadcasts: Int { broker.ignoredBroadcasts }

    /// The reason why this app does not own its bus name, so that the bus cannot start it to clean up. `nil` if it owns
    /// the name, requested none, or has not reached the bus yet. Everything else works without the name.
    public var busNameProblem: SharedDeviceError? { broker.busNameProblem }

    // MARK: Sign-in and tokens

    /// Signs a person in for the whole device. Either `shared-device-sign-in` asks the person, or the parameters'
    /// closure returns the name and password for the broker.
    ///
    /// If the device's policy makes a sign-in wait for the cleanup of the last session, this function waits, for at
    /// most ``InteractiveTokenParameters/patience``. If the task is cancelled during the sign-in, or no response comes
    /// in time, the sign-in is undone, provided that the broker can be told.
    ///
    /// - Throws: ``SharedDeviceError`` with one of the codes of ``acquireTokenSilent(with:)``, or one of these:
    ///   ``SharedDeviceError/Code/accountAlreadySignedIn``, ``SharedDeviceError/Code/cleanupPending``,
    ///   ``SharedDeviceError/Code/deviceNotJoined``, ``SharedDeviceError/Code/loginExpired``,
    ///   ``SharedDeviceError/Code/tenantMismatch``, and
    ///   - ``SharedDeviceError/Code/currentAccountMismatch``: the account was signed out during the request.
    ///   - ``SharedDeviceError/Code/interactionRequired``: no prompt can be shown.
    ///   - ``SharedDeviceError/Code/notPermitted``: the app may not have these scopes, people sign in by a login at the
    ///     machine, or the device does not comply with the organisation's rules.
    ///   - ``SharedDeviceError/Code/scopesDeclined``: the person is signed in; a token of fewer scopes may be granted.
    ///   - ``SharedDeviceError/Code/userNotAllowed``: the person may not sign in on this device, or not use this app.
    public func acquireToken(with parameters: InteractiveTokenParameters) async throws(SharedDeviceError) -> TokenResult
    {
        let attempted = "sign in"
        let patience = min(max(parameters.patience, .zero), .seconds(60))
        guard let prompt = parameters.prompt else {
            // Wait before the prompt, so that a person does not type a password in vain. While an account is signed in,
            // there is no wait: that account is asked again, and the app may hold its data.
            let current = try await keeper.current()
            if current == nil { try await waitUntilClean(for: patience, attempted: attempted) }
            if let current, let token = try await acquireTokenWithoutPrompt(parameters, current) { return token }
            return try await acquireTokenAtPrompt(parameters, current, patience: patience, attempted: attempted)
        }
        guard !parameters.asksAgain, parameters.maximumAge == nil, parameters.claims == nil else {
            let message = "only shared-device-sign-in can ask a person again; leave out the app's own prompt"
            throw SharedDeviceError(.interactionRequired, attempted: attempted, message: message)
        }
        guard let credentials = await prompt(parameters.loginHint) else {
            throw SharedDeviceError(.userCanceled, attempted: attempted, message: "no name and password were given")
        }
        try await waitUntilClean(for: patience, attempted: attempted)
        let number = UUID().uuidString
        let request: BrokerProtocol.Fields = [
            "application": .string(identifier),
            "request": .string(number),
            "wait": .double(patience / .seconds(1)),
            "username": .string(credentials.username),
            "password": .string(credentials.password),
            "scopes": .array(parameters.scopes.map(DBusValue.string), of: "s"),
        ]
        let result: Result<TokenResult, SharedDeviceError>
        do throws(SharedDeviceError) {
            result = .success(try await token(.signIn, request, attempted, timeout: .seconds(25) + patience))
        } catch {
            result = .failure(error)
        }
        let isUnanswered = if case .failure(let error) = result { error.code == .brokerUnavailable } else { false }
        guard Task.isCancelled || isUnanswered else { return try result.get() }
        // The person has cancelled, or is told that it failed, and may leave the device: undo the sign-in. This call
        // follows the request even if it went unanswered, because the broker may still complete the sign-in later.
        Task { [broker, identifier] in
            _ = try? await broker.call(
                .cancelSignIn,
                ["application": .string(identifier), "request": .string(number)],
                attempted: "cancel a sign-in"
            )
        }
        if case .failure(let error) = result { throw error }
        throw SharedDeviceError(.userCanceled, attempted: attempted, message: "the task was cancelled")
    }

    /// Gets a token for the current account without a prompt.
    ///
    /// - Throws: ``SharedDeviceError`` with one of these codes:
    ///   - ``SharedDeviceError/Code/noCurrentAccount`` or ``SharedDeviceError/Code/currentAccountMismatch``: the
    ///     account is not, or is no longer, the current one.
    ///   - ``SharedDeviceError/Code/cleanupRequired``: the app has to clean up first.
    ///   - ``SharedDeviceError/Code/interactionRequired``: the provider wants the person to sign in again.
    ///   - ``SharedDeviceError/Code/authenticationFailed``: the device's own directory no longer admits the user.
    ///   - ``SharedDeviceError/Code/notPermitted``: the app may not have these scopes, or the device gives no tokens.
    ///   - ``SharedDeviceError/Code/tooManyAttempts``: the app or its user has requested too many tokens.
    ///   - ``SharedDeviceError/Code/userCanceled``: the task was cancelled.
    ///   - ``SharedDeviceError/Code/appNotEligible``, ``SharedDeviceError/Code/brokerUnavailable``,
    ///     ``SharedDeviceError/Code/notSharedDevice``, ``SharedDeviceError/Code/providerMisconfigured``,
    ///     ``SharedDeviceError/Code/providerUnavailable``, ``SharedDeviceError/Code/recordUnusable``,
    ///     ``SharedDeviceError/Code/scopesDeclined``
    public func acquireTokenSilent(
        with parameters: SilentTokenParameters
    ) async throws(SharedDeviceError) -> TokenResult {
        let attempted = "get a token for \(parameters.account.username)"
        let session = try await keeper.requireClean(for: parameters.account, attempted: attempted)
        var request: BrokerProtocol.Fields = [
            "application": .string(identifier),
            "accountIdentifier": .string(parameters.account.identifier),
            "scopes": .array(parameters.scopes.map(DBusValue.string), of: "s"),
            "forceRefresh": .boolean(parameters.forceRefresh),
        ]
        request["session"] = session.map(DBusValue.uint64)
        request["maximumAge"] = parameters.maximumAge.map { .double(max($0, .zero) / .seconds(1)) }
        return try await token(.acquireTokenSilently, request, attempted)
    }

    /// Waits until the app is clean: its cleanup may be in progress in another task.
    private func waitUntilClean(for patience: Duration, attempted: String) async throws(SharedDeviceError) {
        let deadline = ContinuousClock.now + patience
        while true {
            do throws(SharedDeviceError) {
                try await keeper.requireClean(for: nil, attempted: attempted)
                return
            } catch {
                guard error.code == .cleanupRequired, deadline > .now,
                    (try? await Task.sleep(for: .milliseconds(50))) != nil
                else { throw error }
            }
        }
    }

    /// Sends a token request. The returned session enters the record before this function returns, because the app may
    /// store data for the account at once.
    private func token(
        _ method: BrokerProtocol.Method,
        _ request: BrokerProtocol.Fields,
        _ attempted: String,
        timeout: Duration = .seconds(25)
    ) async throws(SharedDeviceError) -> TokenResult {
        let heard = broker.heardBroadcasts
        let fields = try await broker.call(method, request, attempted: attempted, timeout: timeout)
        let (result, session) = try BrokerProtocol.decoded(attempted) { () throws(BrokerProtocol.Malformed) in
            (try TokenResult(fields), try DeviceSession(fields))
        }
        try await keeper.enter(session, attempted: attempted, isDoubtful: broker.heardBroadcasts != heard)
        return result
    }
}

extension SharedDeviceApplication {
    /// Signs the account out for the whole device: its tokens are revoked, and all apps are told. Each app deletes its
    /// own data; this app learns of the change through ``accountChanges``.
    ///
    /// The sign-out is complete when the broker has it on disk. Later failures, in the apps' cleanup or in the browser,
    /// do not undo it. ``SignoutParameters`` say whether this function waits for the apps and for the browser.
    ///
    /// - Throws: ``SharedDeviceError/Code/noCurrentAccount``, ``SharedDeviceError/Code/currentAccountMismatch``,
    ///   ``SharedDeviceError/Code/appNotEligible``, ``SharedDeviceError/Code/recordUnusable``;
    ///   ``SharedDeviceError/Code/brokerUnavailable`` and, if the task is cancelled,
    ///   ``SharedDeviceError/Code/userCanceled``. With these two the account may be signed out nevertheless: get the
    ///   current account.
    @discardableResult
    public func signout(
        with account: Account,
        signoutParameters: SignoutParameters = SignoutParameters()
    ) async throws(SharedDeviceError) -> SignoutResult {
        let attempted = "sign \(account.username) out"
        var request: BrokerProtocol.Fields = [
            "application": .string(identifier), "accountIdentifier": .string(account.identifier),
        ]
        // The request names the session, so that a delayed request does not end a later session.
        request["session"] = try await keeper.session(of: account).map(DBusValue.uint64)
        let fields = try await broker.call(.signOut, request, attempted: attempted)
        guard let session = fields["session"]?.unsignedValue else {
            let message = "the broker's response lacks “session”"
            throw SharedDeviceError(.brokerFailed, attempted: attempted, message: message)
        }
        async let browser = signOutFromBrowser(fields["endSessionURL"]?.stringValue, signoutParameters)
        var cleanup: CleanupReport?
        if let deadline = signoutParameters.cleanupDeadline {
            cleanup = try? await lastReport(
                of: session,
                after: try? Self.round(in: fields),
                within: deadline,
                isPersistent: true,
                onProgress: signoutParameters.onProgress
            )
        }
        return SignoutResult(session: session, cleanup: cleanup, browser: await browser)
    }

    /// Returns the state of the cleanup after a session.
    ///
    /// - Parameter session: the value of ``SignoutResult/session``; `nil` means the session that ended last.
    /// - Returns: `nil` if no such session has ended, or it ended too long ago.
    /// - Throws: ``SharedDeviceError/Code/brokerUnavailable``, ``SharedDeviceError/Code/appNotEligible``;
    ///   ``SharedDeviceError/Code/userCanceled`` if the task is cancelled.
    public func cleanupReport(ofSession session: UInt64? = nil) async throws(SharedDeviceError) -> CleanupReport? {
        try await round(session, after: nil, wait: .zero)?.report
    }

    /// Waits until all apps have cleaned up after a session, or until the time is up.
    ///
    /// - Parameters:
    ///   - session: the value of ``SignoutResult/session``; `nil` means the session that ended last.
    ///   - duration: the longest wait.
    ///   - onProgress: called with each step, in order, on this task.
    /// - Returns: the state of the round at the end; `nil` if there is no round.
    /// - Throws: ``SharedDeviceError/Code/brokerUnavailable``, also if the broker ends during the wait;
    ///   ``SharedDeviceError/Code/appNotEligible``; ``SharedDeviceError/Code/userCanceled`` if the task is cancelled.
    public func waitForCleanup(
        ofSession session: UInt64? = nil,
        within duration: Duration,
        onProgress: (@Sendable (CleanupReport) -> Void)? = nil
    ) async throws(SharedDeviceError) -> CleanupReport? {
        try await lastReport(of: session, within: duration, onProgress: onProgress)
    }

    /// - Parameters:
    ///   - known: the last state of the round that the app has seen.
    ///   - isPersistent: whether to keep waiting while the broker does not respond, and to return the last known state
    ///     at the end. After a sign-out, which has succeeded, that is more useful than an error.
    private func lastReport(
        of session: UInt64?,
        after known: Round? = nil,
        within duration: Duration,
        isPersistent: Bool = false,
        onProgress: (@Sendable (CleanupReport) -> Void)?
    ) async throws(SharedDeviceError) -> CleanupReport? {
        let deadline = ContinuousClock.now + duration
        var known = known
        if let known { onProgress?(known.report) }
        while known?.report.isComplete != true {
            do throws(SharedDeviceError) {
                let next = try await round(
                    known?.report.session ?? session,
                    after: known?.revision,
                    // Without a follower the broker responds at the beginning and at the end, not after each step.
                    awaitsEnd: known != nil && onProgress == nil,
                    // Limited, because the broker may end during the request, or the bus may restart.
                    wait: min(max(.zero, deadline - .now), .seconds(5))
                )
                guard let next else { return nil }
                if next.report != known?.report { onProgress?(next.report) }
                known = next
                if deadline <= .now || Task.isCancelled { break }
            } catch {
                guard isPersistent else { throw error }
                guard deadline > .now, (try? await Task.sleep(for: .milliseconds(200))) != nil else { break }
            }
        }
        return known?.report
    }

    private func round(
        _ session: UInt64?,
        after revision: UInt64?,
        awaitsEnd: Bool = false,
        wait: Duration
    ) async throws(SharedDeviceError) -> Round? {
        let attempted = "get the progress of the cleanup"
        var request: BrokerProtocol.Fields = [
            "application": .string(identifier), "wait": .double(wait / .seconds(1)),
        ]
        request["session"] = session.map(DBusValue.uint64)
        request["revision"] = revision.map(DBusValue.uint64)
        if awaitsEnd { request["awaitsEnd"] = .boolean(true) }
        let fields = try await broker.call(.getRound, request, attempted: attempted, timeout: .seconds(25) + wait)
        return try BrokerProtocol.decoded(attempted) { () throws(BrokerProtocol.Malformed) in
            try Self.round(in: fields)
        }
    }

    /// A round, and the broker's revision number of this state.
    private typealias Round = (report: CleanupReport, revision: UInt64)

    private static func round(in fields: BrokerProtocol.Fields) throws(BrokerProtocol.Malformed) -> Round? {
        guard let round = fields["round"] else { return nil }
        guard let revision = fields["revision"]?.unsignedValue else { throw BrokerProtocol.Malformed("revision") }
        return (try CleanupReport(round), revision)
    }
}

// MARK: Activity

extension SharedDeviceApplication {
    /// Reports that a person is using this app. Call it for each touch, key press or scan: if the device signs out
    /// after a period of inactivity, the period restarts. A sign-in has the same effect; requests for the current
    /// account and for tokens do not.
    ///
    /// It returns at once, and tells the broker at most every ten seconds. So choose an inactivity period well above
    /// ten seconds.
    public func noteActivity() {
        let isDue = lastActivity.withLock { last in
            let now = ContinuousClock.now
            if let last, now - last < .seconds(10) { return false }
            last = now
            return true
        }
        guard isDue else { return }
        Task { [broker, identifier] in
            // A lost report does no harm: the next touch sends another.
            _ = try? await broker.call(
                .reportActivity,
                ["application": .string(identifier)],
                attempted: "report activity"
            )
        }
    }
}

/// The requests with completion blocks, spelled as in MSAL for iOS. Each block is called once, on the queue that the
/// parameters name.
extension SharedDeviceApplication {
    /// Gets the device's information; if the broker does not respond, together with an error. By default the block runs
    /// on a queue of the system's choice.
    public func getDeviceInformation(
        with parameters: SharedDeviceParameters?,
        completionBlock: @escaping @Sendable (DeviceInformation?, SharedDeviceError?) -> Void
    ) {
        let queue = parameters?.completionBlockQueue ?? .global()
        Task {
            let information = await getDeviceInformation()
            queue.async { completionBlock(information, information.problem) }
        }
    }

    /// Gets the current account and the previously reported one. By default the block runs on a queue of the system's
    /// choice.
    public func getCurrentAccount(
        with parameters: SharedDeviceParameters?,
        completionBlock: @escaping @Sendable (_ current: Account?, _ previous: Account?, SharedDeviceError?) -> Void
    ) {
        let queue = parameters?.completionBlockQueue ?? .global()
        complete(on: queue) {
            completionBlock($0?.current, $0?.previous, $1)
        } request: { [self] () throws(SharedDeviceError) in
            try await getCurrentAccount()
        }
    }

    /// Signs a person in for the whole device. By default the block runs on the main queue.
    public func acquireToken(
        with parameters: InteractiveTokenParameters,
        completionBlock: @escaping @Sendable (TokenResult?, SharedDeviceError?) -> Void
    ) {
        complete(on: parameters.completionBlockQueue ?? .main, then: completionBlock) {
            [self] () throws(SharedDeviceError) in
            try await acquireToken(with: parameters)
        }
    }

    /// Gets a token without a prompt. By default the block runs on a queue of the system's choice.
    public func acquireTokenSilent(
        with parameters: SilentTokenParameters,
        completionBlock: @escaping @Sendable (TokenResult?, SharedDeviceError?) -> Void
    ) {
        let queue = parameters.completionBlockQueue ?? .global()
        complete(on: queue, then: completionBlock) { [self] () throws(SharedDeviceError) in
            try await acquireTokenSilent(with: parameters)
        }
    }

    /// Signs the account out for the whole device. By default the block runs on the main queue.
    public func signout(
        with account: Account,
        signoutParameters: SignoutParameters,
        completionBlock: @escaping @Sendable (_ success: Bool, SharedDeviceError?) -> Void
    ) {
        let queue = signoutParameters.completionBlockQueue ?? .main
        complete(on: queue) {
            completionBlock($1 == nil, $1)
        } request: { [self] () throws(SharedDeviceError) in
            try await signout(with: account, signoutParameters: signoutParameters)
        }
    }

    private func complete<Value: Sendable>(
        on queue: DispatchQueue,
        then block: @escaping @Sendable (Value?, SharedDeviceError?) -> Void,
        request: @escaping @Sendable () async throws(SharedDeviceError) -> Value
    ) {
        Task {
            do throws(SharedDeviceError) {
                let value = try await request()
                queue.async { block(value, nil) }
            } catch {
                queue.async { block(nil, error) }
            }
        }
    }
}
