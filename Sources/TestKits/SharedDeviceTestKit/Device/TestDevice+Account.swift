import DBus
import FoundationEssentials
import NotifyCenterTestKit
@_spi(Extensions) public import SharedDevice
import Synchronization

extension TestDevice {
    /// Signs a user in for the whole device, through the kit's own app.
    ///
    /// - Throws: `SharedDeviceError` if the broker refuses.
    @discardableResult
    public func signIn(_ user: String) async throws(SharedDeviceError) -> Account {
        let parameters = InteractiveTokenParameters(scopes: [], loginHint: user) { hint in
            Credentials(username: hint ?? user, password: DeviceHost.password(of: hint ?? user))
        }
        let account = try await control.application.acquireToken(with: parameters).account
        state.withLock { $0.user = account.username }
        host.log.add(DeviceEvent.deviceLane, .signIn, "\(account.username) signs in")
        return account
    }

    /// Signs out the current account, and waits until all apps have reported that they are clean, or until the
    /// deadline. ``PropagationReport/requireClean(of:)`` checks that they are clean.
    ///
    /// Right before the sign-out the apps' directories are copied, so that a later search can tell whether the marker
    /// was there.
    ///
    /// - Throws: `SharedDeviceError` if no account is signed in or the broker refuses;
    ///   ``TestDeviceError/Code/filesFailed``.
    @discardableResult
    public func signOut(deadline: Duration = .seconds(30)) async throws -> PropagationReport {
        try await beginSignOut()
        await wait(for: deadline) { $0.isClean }
        return try report()
    }

    /// Like ``signOut(deadline:)``, but does not wait for the apps.
    ///
    /// - Parameter copies: whether to copy the apps' directories.
    /// - Throws: like ``signOut(deadline:)``.
    public func beginSignOut(copies: Bool = true) async throws {
        let attempted = "sign out"
        guard let account = try await control.application.getCurrentAccount().current else {
            throw SharedDeviceError(.noCurrentAccount, attempted: attempted, message: "no person is signed in")
        }
        if copies {
            let (made, directory) = try copyDirectories()
            state.withLock { ($0.copies, $0.copyDirectory) = (made, directory) }
        } else {
            state.withLock { ($0.copies, $0.copyDirectory) = (nil, nil) }
        }
        let running = Set(apps.filter(\.isRunning).map(\.identifier))
        let asked = ContinuousClock.now
        let session = try await control.application.signout(with: account).session
        let answered = ContinuousClock.now
        host.log.add(DeviceEvent.deviceLane, .signOut, "\(account.username) is signed out")
        let slow = state.withLock { state -> [String: Duration] in
            defer { state.slowCleanups = [:] }
            return state.slowCleanups
        }
        var onTold: [String: @Sendable () -> Void] = [:]
        for app in apps {
            guard let pause = slow[app.identifier] else { continue }
            onTold[app.identifier] = { [weak app] in
                app?.stopSoon()
                Task { [weak app] in
                    try? await Task.sleep(for: pause)
                    try? app?.resume()
                }
            }
        }
        let observer = RoundObserver(session, through: control.application, onTold: onTold)
        state.withLock { state in
            state.signOut = SignOut(user: account.username, asked: asked, answered: answered, running: running)
            state.session = session
            state.observer = observer
        }
    }

    // MARK: Conditions

    /// Waits until every running app has asked the broker for the current account and, if an account is signed in,
    /// holds the session. Data that an app stores after that belongs to that session.
    ///
    /// - Throws: ``TestDeviceError/Code/timeout`` with a list of the apps.
    public func waitUntilRunning(within timeout: Duration = .seconds(60)) async throws(TestDeviceError) {
        let isSignedIn = (try? await control.application.getCurrentAccount().current) ?? nil != nil
        let deadline = ContinuousClock.now + timeout
        while true {
            var known: (running: Set<String>, holding: Set<String>) = ([], [])
            var problem = ""
            do { known = try await control.connectedApps() } catch { problem = "\nthe broker: \(error)" }
            let missing = apps.filter { app in
                let hasAsked = known.running.contains { TestApp.isNamed($0, app.identifier) }
                return app.unexpectedEnd != nil || app.isEnding
                    || app.isRunning
                        && !(hasAsked
                            && (!isSignedIn || known.holding.contains { TestApp.isNamed($0, app.identifier) }))
            }
            if missing.isEmpty, problem.isEmpty { return }
            let hasEnded = missing.contains { $0.unexpectedEnd != nil }
            guard !hasEnded, deadline > .now, !Task.isCancelled else {
                for app in missing where app.unexpectedEnd != nil { await app.outputIsComplete() }
                let lines = missing.map { "\($0.identifier): \(Self.why($0, known.running, known.holding))" }
                let others = known.running.union(known.holding).filter { identifier in
                    !TestApp.isNamed(identifier, ControlApp.identifier)
                        && !apps.contains { TestApp.isNamed(identifier, $0.identifier) }
                }
                let strangers =
                    others.isEmpty
                    ? "" : "\nother apps that asked: \(others.sorted().joined(separator: ", "))"
                throw TestDeviceError(
                    .timeout,
                    "not all apps of the device run\n\(lines.joined(separator: "\n"))\(strangers)\(problem)"
                )
            }
            await Wait.moment()
        }
    }

    private static func why(_ app: DeviceApp, _ running: Set<String>, _ holding: Set<String>) -> String {
        if let status = app.unexpectedEnd {
            return "its process ended \(DeviceApp.text(status: status)). It wrote:\n"
                + (app.lines.suffix(10) + [app.errorText]).joined(separator: "\n")
        }
        if app.isStopped { return "it is stopped" }
        return running.union(holding).contains { TestApp.isNamed($0, app.identifier) }
            ? "it has not asked since the sign-in"
            : "it runs, but no app of this identifier has asked the broker; does it pass this identifier to "
                + "SharedDeviceApplication, does it use the bus of its environment, and does the broker refuse it (brokerText)?"
    }

    /// Waits until every app that takes part in the last sign-out was told of it.
    ///
    /// - Throws: ``TestDeviceError/Code/timeout`` with a table of the apps.
    @discardableResult
    public func waitUntilHeard(
        within timeout: Duration = .seconds(60)
    ) async throws(TestDeviceError)
        -> PropagationReport
    {
        await wait(for: timeout) { report in report.hasRound && report.apps.allSatisfy(\.hasHeard) }
        let report = try report()
        guard report.apps.allSatisfy(\.hasHeard), report.hasRound else {
            throw TestDeviceError(.timeout, "not all apps heard of the sign-out within \(timeout)\n\(report)")
        }
        return report
    }

    /// Waits until every app that takes part in the last sign-out has reported that it is clean.
    ///
    /// - Throws: ``TestDeviceError/Code/timeout`` with a table of the apps.
    @discardableResult
    public func waitUntilClean(
        within timeout: Duration = .seconds(60)
    ) async throws(TestDeviceError)
        -> PropagationReport
    {
        await wait(for: timeout) { $0.isClean }
        let report = try report()
        guard report.isClean else {
            throw TestDeviceError(.timeout, "not all apps were clean within \(timeout)\n\(report)")
        }
        return report
    }

    /// Returns the state of the apps' cleanup after the last sign-out.
    ///
    /// - Throws: ``TestDeviceError/Code/notThere`` if there was no sign-out yet.
    public func report() throws(TestDeviceError) -> PropagationReport { try PropagationReport(of: self) }

    // Inlining it crashes the Swift 6.3 compiler in release builds (LLVM, while it splits the caller's coroutine).
    @inline(never)
    func wait(for timeout: Duration, until condition: (PropagationReport) -> Bool) async {
        let deadline = ContinuousClock.now + timeout
        while deadline > .now, !Task.isCancelled {
            if let report = try? report(), condition(report) { return }
            await Wait.moment()
        }
    }

    // MARK: Copies

    private func copyDirectories() throws(TestDeviceError) -> ([String: [String]], TemporaryDirectory) {
        do {
            let root = try TemporaryDirectory("shared-device-kit-before")
            var copies: [String: [String]] = [:]
            for (number, app) in apps.enumerated() {
                for (place, directory) in app.directories.enumerated() {
                    let target = "\(root.path)/\(number)-\(place)"
                    DirectoryCopy.copy(directory, to: target)
                    copies[app.identifier, default: []].append(target)
                }
            }
            return (copies, root)
        } catch {
            throw TestDeviceError(.filesFailed, "could not copy the apps' directories: \(systemReason(error))")
        }
    }
}
