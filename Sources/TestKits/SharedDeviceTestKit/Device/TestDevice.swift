import Basics
import DBus
import FoundationEssentials
import NotifyCenter
public import NotifyCenterTestKit
public import SharedDevice
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
        var session: UInt64?
        /// Copies of the apps' directories, made right before the last sign-out.
        var copies: [String: [String]]?
        /// The directory of the copies, which the next sign-out removes.
        var copyDirectory: TemporaryDirectory?
        var slowCleanups: [String: Duration] = [:]
    }

    /// The apps, in the order of the initialiser's argument.
    public let apps: [DeviceApp]
    let host: DeviceHost
    let control: ControlApp
    private let broadcasts: NotificationObservation
    let state = Locked(State())

    /// Starts a device. On return bus and broker respond, the users exist, and the apps are started;
    /// ``waitUntilRunning(within:)`` waits until they are ready.
    ///
    /// - Parameters:
    ///   - apps: the apps; those with ``TestApp/startsWithDevice`` are started.
    ///   - users: user names; each has the password “correct horse NAME”.
    ///   - cleanup: whether the next sign-in waits for the cleanup of the last session.
    ///   - organization: the organisation that manages the device.
    ///   - programs: the directory of `shared-device-broker` and `shared-device`. `nil` means to look in
    ///     `SHARED_DEVICE_PROGRAMS`, in the directory of the running program, and in `PATH`.
    ///   - directory: the directory of everything, which is not removed. `nil` means a temporary one, which is removed
    ///     with the device.
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

    public var policy: Policy
    /// The time that a sign-in waits for a round, in seconds; `nil` means the broker's default.
    public var timeout: Double?

    /// Creates a rule; see the properties.
    public init(_ policy: Policy, timeout: Double? = nil) {
        self.policy = policy
        self.timeout = timeout
    }

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
