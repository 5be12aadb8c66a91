import DBusTransport
import Synchronization

extension SharedDeviceApplication {
    /// Signs the account out for the whole device: its tokens end, and all apps are told. The data of the app is the app's to
    /// delete, this one's too: the change comes through ``accountChanges``.
    ///
    /// The sign-out is done when the broker has it on its disk; what comes after, the cleanup of the apps and the browser's session, does not
    /// undo it. With ``SignoutParameters/cleanupDeadline`` this waits for the apps' receipts, with
    /// ``SignoutParameters/signoutFromBrowser`` for the browser to open.
    ///
    /// - Throws: ``SharedDeviceError/Code/noCurrentAccount``, ``SharedDeviceError/Code/currentAccountMismatch``,
    ///   ``SharedDeviceError/Code/appNotEligible``, ``SharedDeviceError/Code/brokerUnavailable``.
    @discardableResult
    public func signout(
        with account: Account,
        signoutParameters: SignoutParameters = SignoutParameters()
    ) async throws(SharedDeviceError) -> SignoutResult {
        let attempted = "sign \(account.username) out"
        var request: BrokerProtocol.Fields = [
            "application": .string(identifier), "accountIdentifier": .string(account.identifier),
        ]
        // A request that comes late must not end a later session.
        request["session"] = try await session(of: account).map(DBusValue.uint64)
        let fields = try await broker.call(.signOut, request, attempted: attempted)
        guard let session = fields["session"]?.unsignedValue else {
            throw SharedDeviceError(.brokerFailed, attempted: attempted, message: "its answer lacks “session”")
        }
        async let browser = signOutFromBrowser(fields["endSessionURL"]?.stringValue, signoutParameters)
        var cleanup: CleanupReport?
        if let deadline = signoutParameters.cleanupDeadline {
            cleanup = await lastReport(
                of: session,
                within: deadline,
                onProgress: signoutParameters.onProgress
            )
        }
        return SignoutResult(session: session, cleanup: cleanup, browser: await browser)
    }

    /// How far the cleanup after a session is.
    ///
    /// - Parameter session: as ``SignoutResult/session`` names it; `nil` for the session that ended last.
    /// - Returns: `nil` where no such session has ended, or it is too long ago.
    /// - Throws: ``SharedDeviceError/Code/brokerUnavailable``, ``SharedDeviceError/Code/appNotEligible``.
    public func cleanupReport(ofSession session: UInt64? = nil) async throws(SharedDeviceError) -> CleanupReport? {
        try await round(session, after: nil, wait: .zero)?.report
    }

    /// Waits until all apps have cleaned up after a session, or for `duration`.
    ///
    /// - Parameters:
    ///   - session: as ``SignoutResult/session`` names it; `nil` for the session that ended last.
    ///   - duration: how long to wait at most.
    ///   - onProgress: hears each step, in order, on this task.
    /// - Returns: the round as it is then; `nil` where there is none.
    /// - Throws: ``SharedDeviceError/Code/brokerUnavailable``, ``SharedDeviceError/Code/appNotEligible``.
    public func waitForCleanup(
        ofSession session: UInt64? = nil,
        within duration: Duration,
        onProgress: (@Sendable (CleanupReport) -> Void)? = nil
    ) async throws(SharedDeviceError) -> CleanupReport? {
        try await lastReport(of: session, within: duration, isFollowed: onProgress != nil) { onProgress?($0) }
    }

    /// - Parameter isFollowed: whether each step is worth an answer of the broker; otherwise the first report and the last are.
    private func lastReport(
        of session: UInt64?,
        within duration: Duration,
        isFollowed: Bool,
        onReport: @Sendable (CleanupReport) -> Void
    ) async throws(SharedDeviceError) -> CleanupReport? {
        let deadline = ContinuousClock.now + duration
        var known: (report: CleanupReport, revision: UInt64)?
        while true {
            // A broker that ends while it is asked, or a bus that is restarted, must not hold the request for ever.
            let wait = min(max(.zero, deadline - .now), .seconds(5))
            let next = try await round(
                known?.report.session ?? session,
                after: known?.revision,
                awaitsEnd: known != nil && !isFollowed,
                wait: wait
            )
            guard let next else { return nil }
            if next.report != known?.report { onReport(next.report) }
            known = next
            if next.report.isComplete || deadline <= .now || Task.isCancelled { return next.report }
        }
    }

    /// As ``waitForCleanup(ofSession:within:onProgress:)``, but what keeps the broker from answering is waited out: the sign-out is done, and
    /// what is known is worth more than an error.
    private func lastReport(
        of session: UInt64,
        within duration: Duration,
        onProgress: (@Sendable (CleanupReport) -> Void)?
    ) async -> CleanupReport? {
        let deadline = ContinuousClock.now + duration
        let latest = Locked<CleanupReport?>(nil)
        while true {
            do throws(SharedDeviceError) {
                return try await lastReport(
                    of: session,
                    within: max(.zero, deadline - .now),
                    isFollowed: onProgress != nil
                ) { report in
                    let isNews = latest.withLock { latest in
                        defer { latest = report }
                        return latest != report
                    }
                    if isNews { onProgress?(report) }
                }
            } catch {
                guard deadline > .now, (try? await Task.sleep(for: .milliseconds(200))) != nil else {
                    return latest.withLock { $0 }
                }
            }
        }
    }

    private func round(
        _ session: UInt64?,
        after revision: UInt64?,
        awaitsEnd: Bool = false,
        wait: Duration
    ) async throws(SharedDeviceError) -> (report: CleanupReport, revision: UInt64)? {
        let attempted = "ask how far the cleanup is"
        var request: BrokerProtocol.Fields = [
            "application": .string(identifier), "wait": .double(wait / .seconds(1)),
        ]
        if let session { request["session"] = .uint64(session) }
        if let revision { request["revision"] = .uint64(revision) }
        if awaitsEnd { request["awaitsEnd"] = .boolean(true) }
        let fields = try await broker.call(.getRound, request, attempted: attempted, timeout: .seconds(25) + wait)
        guard let round = fields["round"] else { return nil }
        do throws(BrokerProtocol.Malformed) {
            guard let revision = fields["revision"]?.unsignedValue else { throw BrokerProtocol.Malformed("revision") }
            return (try CleanupReport(round), revision)
        } catch {
            throw SharedDeviceError(.brokerFailed, attempted: attempted, message: "its answer lacks “\(error.field)”")
        }
    }
}

// MARK: Signs of use

/// Tells the broker that somebody is using the device, now and then.
final class ActivityReporter: Sendable {
    /// The least time between two words of it.
    static let interval = Duration.seconds(10)

    private let last = Locked<ContinuousClock.Instant?>(nil)

    /// Whether it is time to tell; who is told yes, tells.
    func isDue(at now: ContinuousClock.Instant = .now) -> Bool {
        last.withLock { last in
            if let last, now - last < Self.interval { return false }
            last = now
            return true
        }
    }
}

extension SharedDeviceApplication {
    /// Somebody is using this app: to be called at a touch, a key, a scan. Where the device signs out after a time of inactivity, this makes that
    /// time begin anew; signing in and asking for a token do so too, asking for the current account does not.
    ///
    /// Returns at once, and may be called as often as there is reason to: the broker is told at most every ten seconds, and a broker that
    /// does not answer is not told. Choose no timeout for a device that is not well above that.
    public func noteActivity() {
        guard activity.isDue() else { return }
        Task { [broker, identifier] in
            // Nothing depends on one report: the next comes with the next touch.
            _ = try? await broker.call(
                .reportActivity,
                ["application": .string(identifier)],
                attempted: "report activity"
            )
        }
    }
}
