import Basics
import DBus
import Synchronization

extension SharedDeviceApplication {
    /// Signs the account out for the whole device: its tokens are revoked, and all apps are notified. Each app deletes
    /// its own data, including this app, which learns of the change through ``accountChanges``.
    ///
    /// The sign-out is complete when the broker has it on disk. Later failures, in the apps' cleanup or in the browser,
    /// do not undo it. With ``SignoutParameters/cleanupDeadline`` this function waits for the apps' receipts, with
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
        // The request names the session, so that a delayed request does not end a later session.
        request["session"] = try await session(of: account).map(DBusValue.uint64)
        let fields = try await broker.call(.signOut, request, attempted: attempted)
        guard let session = fields["session"]?.unsignedValue else {
            throw SharedDeviceError(
                .brokerFailed,
                attempted: attempted,
                message: "the broker's response lacks “session”"
            )
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

    /// Returns the state of the cleanup after a session.
    ///
    /// - Parameter session: the value of ``SignoutResult/session``; `nil` means the session that ended last.
    /// - Returns: `nil` if no such session has ended, or it ended too long ago.
    /// - Throws: ``SharedDeviceError/Code/brokerUnavailable``, ``SharedDeviceError/Code/appNotEligible``.
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
    /// - Throws: ``SharedDeviceError/Code/brokerUnavailable``, ``SharedDeviceError/Code/appNotEligible``.
    public func waitForCleanup(
        ofSession session: UInt64? = nil,
        within duration: Duration,
        onProgress: (@Sendable (CleanupReport) -> Void)? = nil
    ) async throws(SharedDeviceError) -> CleanupReport? {
        try await lastReport(of: session, within: duration, isFollowed: onProgress != nil) { onProgress?($0) }
    }

    /// - Parameters:
    ///   - known: the last state of the round that the app has seen.
    ///   - isFollowed: whether the broker responds after each step. Otherwise it responds at the beginning and at the
    ///     end.
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
            // The wait is limited because the broker may end during the request, or the bus may restart.
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

    /// Like ``waitForCleanup(ofSession:within:onProgress:)``, but keeps waiting while the broker does not respond. The
    /// sign-out has succeeded, so the last known state is more useful than an error.
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
        let attempted = "get the progress of the cleanup"
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
            throw SharedDeviceError(
                .brokerFailed,
                attempted: attempted,
                message: "the broker's response lacks “\(error.field)”"
            )
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

final class ActivityReporter: Sendable {
    static let interval = Duration.seconds(10)

    private let last = Locked<ContinuousClock.Instant?>(nil)

    /// Whether a report is due. A caller that gets true must send the report.
    func isDue(at now: ContinuousClock.Instant = .now) -> Bool {
        last.withLock { last in
            if let last, now - last < Self.interval { return false }
            last = now
            return true
        }
    }
}

extension SharedDeviceApplication {
    /// Reports that a person is using this app. Call it for each touch, key press or scan. If the device signs out
    /// after a period of inactivity, the period restarts. A sign-in and a request for a token have the same effect; a
    /// request for the current account does not.
    ///
    /// It returns at once, and may be called often: the broker is told at most every ten seconds, and only while it
    /// responds. So choose an inactivity period well above ten seconds.
    public func noteActivity() {
        guard activity.isDue() else { return }
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
