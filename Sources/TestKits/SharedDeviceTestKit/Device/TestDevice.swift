import Basics
import DBus
import FoundationEssentials
import NotifyCenter
public import NotifyCenterTestKit
@_spi(Extensions) public import SharedDevice
import Synchronization

/// A shared device for one test: a private bus, the real broker as a process, users, and apps as processes. All of it
/// ends when this object is released, so keep it for the duration of the test. Devices share no state, so tests with
/// separate devices run in parallel.
///
/// ```swift
/// let device = try await TestDevice(apps: [TestApp("org.example.notes", executable: TestApp.built("notes"))])
/// try await device.signIn("ada")
/// try await device.waitUntilRunning()
/// try device.app("org.example.notes").write("remember ada's secret")
/// …
/// try await device.signOut().requireClean(of: "ada's secret")
/// ```
public final class TestDevice: Sendable {
    struct SignOut {
        let user: String
        let asked: ContinuousClock.Instant
        let answered: ContinuousClock.Instant
        let running: Set<String>
    }

    struct State {
        var user: String?
        var observer: RoundObserver?
        var signOut: SignOut?
        /// Copies of the apps' directories, made right before the last sign-out.
        var copies: [String: [String]]?
        /// The directory of the copies, which the next sign-out removes.
        var copyDirectory: TemporaryDirectory?
        var slowCleanups: [String: Duration] = [:]
        /// The screen program, once the plan has locked a session.
        var screen: TestScreen?
        /// The number of the locked session.
        var locked: UInt64?
    }

    /// The apps, in the order of the initialiser's argument.
    public let apps: [DeviceApp]
    let host: DeviceHost
    let control: ControlApp
    /// The users of each group.
    private let groups: [String: [String]]
    private let broadcasts: NotificationObservation
    let state = Locked(State())

    /// Starts a device. On return bus and broker respond, the users exist, and the apps are started;
    /// ``waitUntilRunning(within:)`` waits until they are ready.
    ///
    /// - Parameters:
    ///   - apps: the apps; those with ``TestApp/startsWithDevice`` are started.
    ///   - users: user names; each has the password “correct horse NAME”.
    ///   - groups: the groups of the device's own directory, with their users.
    ///   - allowedUsers: the users who may sign in; `nil` means all.
    ///   - cleanup: whether the next sign-in waits for the cleanup of the last session.
    ///   - organization: the organisation that manages the device.
    ///   - programs: the directory of `shared-device-broker` and `shared-device`. `nil` means to look in
    ///     `SHARED_DEVICE_PROGRAMS`, in the directory of the running program, and in `PATH`.
    ///   - directory: the directory of everything, which is not removed. `nil` means a temporary one, which is removed
    ///     with the device.
    /// - Throws: ``TestDeviceError/Code/programMissing``; ``TestDeviceError/Code/deviceFailed``, also for two apps of
    ///   one identifier; ``TestDeviceError/Code/filesFailed``.
    public init(
        apps: [TestApp] = [],
        users: [String] = ["ada", "grace"],
        groups: [String: [String]] = [:],
        allowedUsers: AllowedPeople? = nil,
        cleanup: CleanupRule = .advisory,
        organization: String = "Contoso",
        programs: String? = nil,
        directory: String? = nil
    ) async throws(TestDeviceError) {
        let host = try DeviceHost(directory: directory, programs: DevicePrograms(directory: programs), apps: apps)
        self.host = host
        var made: [DeviceApp] = []
        for app in apps {
            guard !made.contains(where: { $0.identifier == app.identifier || $0.home == host.home(of: app.identifier) })
            else { throw TestDeviceError(.deviceFailed, "there are two apps \(app.identifier)") }
            made.append(try DeviceApp(app, on: host))
        }
        self.apps = made
        self.groups = groups
        try host.configure(cleanup, organization: organization, allowedUsers: allowedUsers, apps: made)
        try await host.addUsers(users)
        try await host.addGroups(groups)
        try await host.startBroker()
        control = ControlApp(on: host)
        broadcasts = try await host.noteBroadcasts()
        for app in made where app.description.startsWithDevice { try app.start() }
    }

    /// The device's bus, for faults such as `PrivateBus.suspend()`.
    public var bus: PrivateBus { host.bus }
    /// The directory of broker and apps.
    public var directory: String { host.directory }
    /// The broker's log.
    public var brokerText: String { host.brokerText }

    /// Returns the app with this identifier.
    ///
    /// - Throws: ``TestDeviceError/Code/notThere``.
    public func app(_ identifier: String) throws(TestDeviceError) -> DeviceApp {
        if let app = apps.first(where: { $0.identifier == identifier }) { return app }
        let names = apps.map(\.identifier).joined(separator: ", ")
        throw TestDeviceError(.notThere, "the device has no app \(identifier); it has: \(names)")
    }

    /// Creates an app in the test's own process. An identifier stands for one app. The app appears in no report.
    public func application(_ identifier: String) -> SharedDeviceApplication {
        SharedDeviceApplication(
            identifier: identifier,
            bus: bus.bus,
            stateDirectory: "\(directory)/applications/\(DeviceHost.fileName(identifier))"
        )
    }
}

/// Whether the device's next sign-in waits for the cleanup of the last session; part of the managed configuration.
public struct CleanupRule: Sendable, Hashable, Codable {
    /// The rule's name in the configuration.
    public enum Policy: String, Sendable, Codable, CaseIterable {
        /// Sign-ins do not wait; the ledger keeps pending cleanups.
        case advisory
        /// Sign-ins are refused while an app has a pending cleanup.
        case strict
    }

    /// Whether sign-ins wait.
    public var policy: Policy
    /// The time that a sign-in waits for a round, in seconds; `nil` means the broker's default.
    public var timeout: Double?

    /// Creates a rule; see the properties.
    public init(_ policy: Policy, timeout: Double? = nil) { (self.policy, self.timeout) = (policy, timeout) }

    /// Sign-ins do not wait.
    public static let advisory = CleanupRule(.advisory)
    /// The next sign-in waits until all apps have cleaned up.
    public static let strict = CleanupRule(.strict)
}

/// The failure of a test device: the operation and the cause.
public struct TestDeviceError: Error, Sendable, CustomStringConvertible {
    /// The kind of failure. A struct, so that a new kind breaks no `switch`.
    public struct Code: Sendable, Hashable, CustomStringConvertible {
        /// The code's name.
        public let description: String

        /// A program of the device, or of an app, was not found.
        public static let programMissing = Code(description: "program missing")
        /// The bus or the broker does not start.
        public static let deviceFailed = Code(description: "device failed")
        /// The device has no such app or user, or the app does not run.
        public static let notThere = Code(description: "not there")
        /// Something did not happen in time.
        public static let timeout = Code(description: "timeout")
        /// An app is not clean.
        public static let notClean = Code(description: "not clean")
        /// A search that proves nothing, because the marker was not there before the sign-out either.
        public static let provesNothing = Code(description: "proves nothing")
        /// Files of an app cannot be read or written.
        public static let filesFailed = Code(description: "files failed")
        /// A user was signed in whom the device should refuse.
        public static let notRefused = Code(description: "not refused")
    }

    /// The kind of failure.
    public let code: Code
    /// The failure in words, with a table of the apps if that helps.
    public let description: String

    init(_ code: Code, _ description: String) { (self.code, self.description) = (code, description) }
}

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

    /// Tries to sign in a user whom the device must refuse because it is not for the user.
    ///
    /// - Throws: ``TestDeviceError/Code/notRefused`` if the user is signed in; another `SharedDeviceError` of the
    ///   broker.
    public func refuseSignIn(_ user: String) async throws {
        do throws(SharedDeviceError) {
            try await signIn(user)
        } catch {
            guard error.code == .userNotAllowed else { throw error }
            return host.log.add(DeviceEvent.deviceLane, .signIn, "\(user) is refused")
        }
        throw TestDeviceError(.notRefused, "\(user) is signed in, and allowedUsers should refuse this user")
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
        guard let account = try await control.application.getCurrentAccount().current else {
            throw SharedDeviceError(.noCurrentAccount, attempted: "sign out", message: "no person is signed in")
        }
        let copied = copies ? try copyDirectories() : nil
        state.withLock { ($0.copies, $0.copyDirectory) = (copied?.copies, copied?.root) }
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
            state.observer = observer
        }
    }

    // MARK: Conditions

    /// Waits until every running app has asked the broker for the current account and, if an account is signed in that
    /// the app is for, holds the session. Data that an app stores after that belongs to that session.
    ///
    /// - Throws: ``TestDeviceError/Code/timeout`` with a list of the apps, if time runs out or an app has ended by
    ///   itself.
    public func waitUntilRunning(within timeout: Duration = .seconds(60)) async throws(TestDeviceError) {
        let user = (try? await control.application.getCurrentAccount().current)?.username
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
                            && (!isFor(user, app) || known.holding.contains { TestApp.isNamed($0, app.identifier) }))
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
                    others.isEmpty ? "" : "\nother apps that asked: \(others.sorted().joined(separator: ", "))"
                throw TestDeviceError(
                    .timeout,
                    "not all apps of the device run\n\(lines.joined(separator: "\n"))\(strangers)\(problem)"
                )
            }
            await Wait.moment()
        }
    }

    /// Whether a user is signed in whom the app is for.
    private func isFor(_ user: String?, _ app: DeviceApp) -> Bool {
        user.map { app.description.allowedUsers?.allows($0, groups) ?? true } ?? false
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
    /// - Throws: ``TestDeviceError/Code/timeout`` with a table of the apps; ``TestDeviceError/Code/notThere``, after
    ///   that time, if there was no sign-out.
    @discardableResult
    public func waitUntilHeard(
        within timeout: Duration = .seconds(60)
    ) async throws(TestDeviceError)
        -> PropagationReport
    {
        try await report(within: timeout, "heard of the sign-out") { $0.hasRound && $0.apps.allSatisfy(\.hasHeard) }
    }

    /// Waits until every app that takes part in the last sign-out has reported that it is clean.
    ///
    /// - Throws: ``TestDeviceError/Code/timeout`` with a table of the apps; ``TestDeviceError/Code/notThere``, after
    ///   that time, if there was no sign-out.
    @discardableResult
    public func waitUntilClean(
        within timeout: Duration = .seconds(60)
    ) async throws(TestDeviceError)
        -> PropagationReport
    {
        try await report(within: timeout, "were clean") { $0.isClean }
    }

    private func report(
        within timeout: Duration,
        _ what: String,
        _ condition: (PropagationReport) -> Bool
    ) async throws(TestDeviceError) -> PropagationReport {
        await wait(for: timeout, until: condition)
        let report = try report()
        if condition(report) { return report }
        throw TestDeviceError(.timeout, "not all apps \(what) within \(timeout)\n\(report)")
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

    private func copyDirectories() throws(TestDeviceError) -> (copies: [String: [String]], root: TemporaryDirectory) {
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

/// Faults of a device. ``DeviceApp`` has the faults of a single app.
extension TestDevice {
    /// Kills the broker, as a crash would. On return it has ended.
    public func killBroker() async { await host.killBroker() }

    /// Starts the broker again, and kills a running one first. On return it responds.
    ///
    /// - Throws: ``TestDeviceError/Code/deviceFailed``.
    public func restartBroker() async throws(TestDeviceError) {
        await host.killBroker()
        try await host.startBroker()
    }

    /// Kills the bus and starts it again, at the same address. All connections are lost. On return the bus accepts
    /// connections; until then the call blocks this thread.
    ///
    /// - Throws: ``TestDeviceError/Code/deviceFailed``.
    public func restartBus() throws(TestDeviceError) {
        host.log.add(DeviceEvent.busLane, .killed, "the bus is killed")
        do { try bus.restart() } catch {
            throw TestDeviceError(.deviceFailed, "the device's bus does not start again: \(error)")
        }
        host.log.add(DeviceEvent.busLane, .started, "the bus serves")
    }

    /// Posts the broker's broadcast from a connection other than the broker's. No app may act on it. After
    /// ``restartBus()`` it waits until that connection is restored, for at most 30 seconds.
    ///
    /// - Throws: ``TestDeviceError/Code/deviceFailed`` if the bus refuses the post or is not there.
    public func spoofBroadcast() async throws(TestDeviceError) {
        host.log.add(DeviceEvent.busLane, .spoofed, "another process posts the broker's broadcast")
        let center = DarwinNotifyCenter(bus: bus.bus)
        do {
            try await eventually("the connection is there", within: .seconds(30)) {
                do throws(DBusError) {
                    try center.post(.sharedModeCurrentAccountChanged)
                    return true
                } catch {
                    guard error.code == .disconnected else { throw error }
                    return false
                }
            }
        } catch {
            throw TestDeviceError(.deviceFailed, "the broadcast could not be posted: \(error)")
        }
    }

    /// Has the broker tell the apps that the session is about to end by itself, as at the end of a shift. On return the
    /// broker has told them. The session goes on; from now on each session of the device begins with the warning.
    ///
    /// - Throws: ``TestDeviceError/Code/filesFailed``; ``TestDeviceError/Code/deviceFailed`` if no account is signed
    ///   in, or if the broker does not read its configuration within 30 seconds.
    public func warn() async throws(TestDeviceError) {
        try host.configureWarning()
        do {
            try await eventually("the warning is there", within: .seconds(30)) {
                await control.application.getDeviceInformation().sessionEnd?.isSoon == true
            }
        } catch {
            throw TestDeviceError(.deviceFailed, "the broker does not warn; is an account signed in? \(error)")
        }
    }

    /// Has the broker lock the session, as after a time of inactivity. On return the session is locked. This process
    /// stands in for the screen program, and shows the lock.
    ///
    /// - Throws: ``TestDeviceError/Code/filesFailed``; ``TestDeviceError/Code/deviceFailed`` if no account is signed
    ///   in, or if the session is not locked within 30 seconds.
    public func lock() async throws(TestDeviceError) {
        try host.configureLock(after: nil)
        do {
            let screen = try state.withLock { $0.screen } ?? TestScreen(bus: bus.bus)
            state.withLock { $0.screen = screen }
            try await eventually("the broker takes this process for the screen", within: .seconds(30)) {
                screen.isScreen
            }
            try host.configureLock(after: 0.5)
            try await eventually("the session is locked", within: .seconds(30)) {
                await control.application.getDeviceInformation().isLocked
            }
            try host.configureLock(after: nil)
            let session = try await screen.session()
            state.withLock { $0.locked = session }
        } catch {
            let reason = "the session is not locked; is an account signed in? \(error)"
            throw error as? TestDeviceError ?? TestDeviceError(.deviceFailed, reason)
        }
        host.log.add(DeviceEvent.deviceLane, .locked, "the session is locked")
    }

    /// Has the person of the locked session come back, with the password. The session goes on.
    ///
    /// - Throws: ``TestDeviceError/Code/notThere`` if ``lock()`` was not called; ``TestDeviceError/Code/deviceFailed``
    ///   if another session is open afterwards; `SharedDeviceError` if the broker refuses.
    public func unlock(_ user: String) async throws {
        guard let (screen, session) = state.withLock({ state in state.screen.map { ($0, state.locked) } }),
            session != nil
        else { throw TestDeviceError(.notThere, "no session was locked") }
        let now = try await screen.signIn(user)
        let isLocked = await control.application.getDeviceInformation().isLocked
        guard now == session, !isLocked else {
            throw TestDeviceError(.deviceFailed, "the session of \(user) does not go on after the lock")
        }
        host.log.add(DeviceEvent.deviceLane, .unlocked, "\(user) is back")
    }

    /// Makes the app's next cleanup take at least `pause`: stops the app as soon as the broker's ledger says that it
    /// was told, and resumes it after the pause. It works with any app, unless the app finishes before it can be
    /// stopped.
    ///
    /// - Throws: ``TestDeviceError/Code/notThere``.
    public func slowCleanup(of identifier: String, by pause: Duration) throws(TestDeviceError) {
        let app = try app(identifier)
        state.withLock { $0.slowCleanups[app.identifier] = pause }
    }

    /// Makes the bus start an app by its ``TestApp/busName``, as the broker does for an app with a pending cleanup.
    /// Waits until the app has a process, for at most 30 seconds.
    ///
    /// - Throws: ``TestDeviceError/Code/notThere`` if the app has no bus name, or the bus cannot start it.
    public func activate(_ identifier: String) async throws(TestDeviceError) {
        let (app, control) = (try app(identifier), control)
        guard let name = app.description.busName else {
            throw TestDeviceError(.notThere, "\(identifier) has no bus name")
        }
        // The bus responds when the app owns the name. The app need not own it, so wait only until it runs.
        let request = Task { try await control.activate(name) }
        let deadline = ContinuousClock.now + .seconds(30)
        while !app.isRunning {
            guard deadline > .now, !Task.isCancelled else {
                request.cancel()
                let reason = await request.result
                throw TestDeviceError(.notThere, "the bus does not start \(identifier): \(reason)")
            }
            await Wait.moment()
        }
        host.log.add(identifier, .started, "is started by the bus")
    }
}

/// Stands in for the screen program: it reports that it shows whatever the broker asks for.
final class TestScreen: Sendable {
    private let broker: BrokerAdministration
    private let hasAnswer = Atomic(false)
    private let task = Locked<Task<Void, Never>?>(nil)

    init(bus: Bus) throws(SharedDeviceError) {
        broker = try BrokerAdministration(bus: bus)
        let asking = Task { [broker, weak self] in
            var (shows, revision) = (ScreenContent.nothing, UInt64?.none)
            while !Task.isCancelled {
                do throws(SharedDeviceError) {
                    let answer = try await broker.screen(shows: shows, revision: revision, wait: .seconds(30))
                    (shows, revision) = (answer.show, answer.revision)
                    self?.hasAnswer.store(true, ordering: .relaxed)
                } catch {
                    // The broker is restarted, or does not know the manifest yet.
                    await Wait.moment()
                }
            }
        }
        task.withLock { $0 = asking }
    }

    deinit { task.withLock { $0?.cancel() } }

    /// Whether the broker takes this program for the screen.
    var isScreen: Bool { hasAnswer.load(ordering: .relaxed) }

    /// The number of the open session.
    func session() async throws(SharedDeviceError) -> UInt64? {
        try await broker.call(.getDeviceInformation, nil)["epoch"]?.unsignedValue
    }

    /// Signs in at the screen.
    ///
    /// - Returns: The number of the session.
    func signIn(_ user: String) async throws(SharedDeviceError) -> UInt64 {
        let credentials = PersonalCredentials.password(username: user, password: DeviceHost.password(of: user))
        return try await broker.signIn(credentials, as: BrokerProtocol.screenIdentifier, wait: .seconds(15)).epoch
    }
}
