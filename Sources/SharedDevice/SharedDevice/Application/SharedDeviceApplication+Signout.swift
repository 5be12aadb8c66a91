import DBusTransport
import Synchronization

extension SharedDeviceApplication {
    /// Signs the account out for the whole device: its tokens end, and all apps are told. Each app deletes its own data, this one too: it
    /// hears of the change through ``accountChanges``.
    ///
    /// The sign-out is done when the broker has it on its disk. Failures after that, of the apps' cleanup or in the browser, do not undo
    /// it. With ``SignoutParameters/cleanupDeadline`` this waits for the apps' receipts, with ``SignoutParameters/signoutFromBrowser`` for
    /// the browser to open.
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
        // The request names the session, so that a late one does not end another session.
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
                after: try? Self.round(in: fields),
                within: deadline,
                onProgress: signoutParameters.onProgress
            )
        }
        return SignoutResult(session: session, cleanup: cleanup, browser: await browser)
    }

    /// The state of the cleanup after a session.
    ///
    /// - Parameter session: the value of ``SignoutResult/session``; `nil` means the session that ended last.
    /// - Returns: `nil` if no such session has ended, or it is too long ago.
    /// - Throws: ``SharedDeviceError/Code/brokerUnavailable``, ``SharedDeviceError/Code/appNotEligible``.
    public func cleanupReport(ofSession session: UInt64? = nil) async throws(SharedDeviceError) -> CleanupReport? {
        try await round(session, after: nil, wait: .zero)?.report
    }

    /// Waits until all apps have cleaned up after a session, or for `duration`.
    ///
    /// - Parameters:
    ///   - session: the value of ``SignoutResult/session``; `nil` means the session that ended last.
    ///   - duration: the longest wait.
    ///   - onProgress: called with each step, in order, on this task.
    /// - Returns: the state of the round at the end; `nil` if there is no round.
    /// - Throws: ``SharedDeviceError/Code/brokerUnavailable``, ``SharedDeviceError/Code/appNotEligible``.
    public func waitForCleanup(
        ofSession session: UInt64? = nil,
        within duration: Duration,
        onProgress: (@Sendable (CleanupReport) -> Void)? = nil
    ) async throws(SharedDeviceError) -> CleanupReport? {
        try await lastReport(of: session, within: duration, isFollowed: onProgress != nil) { onProgress?($0) }
    }

    /// - Parameters:
    ///   - known: the round as the app knows it already.
    ///   - isFollowed: whether the broker answers after each step. If not, it answers at the beginning and at the end.
    private func lastReport(
        of session: UInt64?,
        after known: Round? = nil,
        within duration: Duration,
        isFollowed: Bool,
        onReport: @Sendable (CleanupReport) -> Void
    ) async throws(SharedDeviceError) -> CleanupReport? {
        let deadline = ContinuousClock.now + duration
        var known = known
        if let known, known.report.isComplete { return known.report }
        while true {
            // A time limit, for a broker that ends during the request or a bus that restarts.
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

    /// Like ``waitForCleanup(ofSession:within:onProgress:)``, but goes on waiting while the broker does not answer: the sign-out is done,
    /// and the last known state is worth more than an error.
    private func lastReport(
        of session: UInt64,
        after known: Round?,
        within duration: Duration,
        onProgress: (@Sendable (CleanupReport) -> Void)?
    ) async -> CleanupReport? {
        let deadline = ContinuousClock.now + duration
        let latest = Locked(known?.report)
        if let known { onProgress?(known.report) }
        while true {
            do throws(SharedDeviceError) {
                return try await lastReport(
                    of: session,
                    after: known,
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
    ) async throws(SharedDeviceError) -> Round? {
        let attempted = "ask how far the cleanup is"
        var request: BrokerProtocol.Fields = [
            "application": .string(identifier), "wait": .double(wait / .seconds(1)),
        ]
        if let session { request["session"] = .uint64(session) }
        if let revision { request["revision"] = .uint64(revision) }
        if awaitsEnd { request["awaitsEnd"] = .boolean(true) }
        let fields = try await broker.call(.getRound, request, attempted: attempted, timeout: .seconds(25) + wait)
        do throws(BrokerProtocol.Malformed) {
            return try Self.round(in: fields)
        } catch {
            throw SharedDeviceError(.brokerFailed, attempted: attempted, message: "its answer lacks “\(error.field)”")
        }
    }

    /// A round, and the broker's number for this state of it.
    private typealias Round = (report: CleanupReport, revision: UInt64)

    private static func round(in fields: BrokerProtocol.Fields) throws(BrokerProtocol.Malformed) -> Round? {
        guard let round = fields["round"] else { return nil }
        guard let revision = fields["revision"]?.unsignedValue else { throw BrokerProtocol.Malformed("revision") }
        return (try CleanupReport(round), revision)
    }
}

// MARK: Signs of use

/// Decides when to tell the broker that somebody is using the device.
final class ActivityReporter: Sendable {
    /// The least time between two reports.
    static let interval = Duration.seconds(10)

    private let last = Locked<ContinuousClock.Instant?>(nil)

    /// Whether a report is due. A caller that gets true makes the report.
    func isDue(at now: ContinuousClock.Instant = .now) -> Bool {
        last.withLock { last in
            if let last, now - last < Self.interval { return false }
            last = now
            return true
        }
    }
}

extension SharedDeviceApplication {
    /// Reports that somebody is using this app. Call it at a touch, a key, a scan. If the device signs out after a time of inactivity, that
    /// time begins again. A sign-in and a request for a token have the same effect; a question for the current account has not.
    ///
    /// It returns at once, and may be called often: the broker is told at most every ten seconds, and only while it answers. So choose a
    /// time of inactivity well above ten seconds.
    public func noteActivity() {
        guard activity.isDue() else { return }
        Task { [broker, identifier] in
            // Nothing depends on a single report: the next touch makes another.
            _ = try? await broker.call(
                .reportActivity,
                ["application": .string(identifier)],
                attempted: "report activity"
            )
        }
    }
}
