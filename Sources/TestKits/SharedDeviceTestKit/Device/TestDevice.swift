import DBusTransport
import FoundationEssentials
import NotifyCenter
public import NotifyCenterTestKit
public import SharedDevice
import Synchronization

/// A shared device for one test: a private bus, the real broker as a process, users, and apps as processes. All of it ends when this object
/// goes, so keep it for as long as the test runs. Devices share no state: tests with a device each run in parallel.
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
    /// The last sign-out.
    struct SignOut {
        let user: String
        let asked: ContinuousClock.Instant
        let answered: ContinuousClock.Instant
        /// The apps that were running then.
        let running: Set<String>
    }

    struct State {
        var user: String?
        var observer: RoundObserver?
        var signOut: SignOut?
        var session: UInt64?
        /// Copies of the apps' directories from right before the last sign-out.
        var copies: [String: [String]]?
        /// The directory of the copies, which the next sign-out removes.
        var copyDirectory: TemporaryDirectory?
        var slowCleanups: [String: Duration] = [:]
    }

    /// The apps, in the order in which they were given.
    public let apps: [DeviceApp]
    let host: DeviceHost
    let control: ControlApp
    private let broadcasts: NotificationObservation
    let state = Locked(State())

    /// Starts a device. On return bus and broker answer, the users exist, and the apps are started; ``waitUntilRunning(within:)`` waits
    /// until they are ready.
    ///
    /// - Parameters:
    ///   - apps: the apps; those with ``TestApp/startsWithDevice`` are started.
    ///   - users: names to sign in with; each has the password “correct horse NAME”.
    ///   - cleanup: whether the next sign-in waits for the cleanup of the last session.
    ///   - organization: the organisation that manages the device.
    ///   - programs: the directory of `shared-device-broker` and `shared-device`. `nil` means to look in `SHARED_DEVICE_PROGRAMS`, in the
    ///     directory of the running program, and in `PATH`.
    ///   - directory: the directory of everything; it stays. `nil` means a temporary one, which goes with the device.
    /// - Throws: ``TestDeviceError/Code/programMissing``, ``TestDeviceError/Code/deviceFailed``.
    public init(
        apps: [TestApp] = [],
        users: [String] = ["ada", "grace"],
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
            else {
                throw TestDeviceError(.deviceFailed, "there are two apps \(app.identifier)")
            }
            made.append(try DeviceApp(app, on: host))
        }
        self.apps = made
        try host.configure(cleanup, organization: organization, apps: made)
        try await host.addUsers(users)
        try await host.startBroker()
        control = ControlApp(on: host)
        broadcasts = try await host.noteBroadcasts()
        for app in made where app.description.startsWithDevice { try app.start() }
    }

    /// The bus.
    public var bus: PrivateBus { host.bus }
    /// The directory of broker and apps.
    public var directory: String { host.directory }
    /// The broker's log.
    public var brokerText: String { host.brokerText }

    /// The app of this identifier.
    ///
    /// - Throws: ``TestDeviceError/Code/notThere``.
    public func app(_ identifier: String) throws(TestDeviceError) -> DeviceApp {
        if let app = apps.first(where: { $0.identifier == identifier }) { return app }
        let names = apps.map(\.identifier).joined(separator: ", ")
        throw TestDeviceError(.notThere, "the device has no app \(identifier); it has: \(names)")
    }

    /// An app in the test's own process. An identifier stands for one app. It appears in no report.
    public func application(_ identifier: String) -> SharedDeviceApplication {
        SharedDeviceApplication(
            identifier: identifier,
            bus: bus.bus,
            stateDirectory: "\(directory)/applications/\(DeviceHost.fileName(identifier))"
        )
    }
}

/// Whether the device's next sign-in waits for the cleanup of the last session, as the managed configuration says.
public struct CleanupRule: Sendable, Hashable, Codable {
    /// The rule's name in the configuration.
    public enum Policy: String, Sendable, Codable, CaseIterable {
        /// Nobody waits; the ledger keeps what is owed.
        case advisory
        /// Nobody can sign in while an app owes a cleanup.
        case strict
    }

    /// The rule.
    public var policy: Policy
    /// How long a sign-in waits for a round, in seconds; `nil` means the broker's default.
    public var timeout: Double?

    /// A rule; see the properties.
    public init(_ policy: Policy, timeout: Double? = nil) {
        self.policy = policy
        self.timeout = timeout
    }

    /// Nobody waits.
    public static let advisory = CleanupRule(.advisory)
    /// The next sign-in waits until everybody has cleaned up.
    public static let strict = CleanupRule(.strict)
}

/// Why a test's device failed: what was attempted, and what happened.
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
        /// A search proves nothing, because the marker was not there before either.
        public static let provesNothing = Code(description: "proves nothing")
        /// Files of an app cannot be read or written.
        public static let filesFailed = Code(description: "files failed")
    }

    /// The kind of failure.
    public let code: Code
    /// The failure in words, with a table of the apps if that helps.
    public let description: String

    init(_ code: Code, _ description: String) {
        self.code = code
        self.description = description
    }
}
