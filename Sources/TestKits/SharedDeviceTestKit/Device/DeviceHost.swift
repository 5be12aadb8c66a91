import Basics
import DBus
import FoundationEssentials
import Glibc
import NotifyCenter
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Synchronization

/// The base of a test device: directory, bus and broker. Every object that uses it keeps it alive.
final class DeviceHost: Sendable {
    let directory: String
    let bus: PrivateBus
    let programs: DevicePrograms
    let log = ObservationLog()
    private let temporary: TemporaryDirectory?
    private let broker = Locked<ChildProcess?>(nil)
    private let brokerOutput = Locked<[String]>([])
    private let settings = Locked<[String: JSONValue]>([:])

    /// Creates directories, bus and managed configuration. The broker is not started yet.
    init(directory: String?, programs: DevicePrograms, apps: [TestApp]) throws(TestDeviceError) {
        self.programs = programs
        do {
            temporary = directory == nil ? try TemporaryDirectory("shared-device-kit") : nil
            self.directory = directory ?? temporary?.path ?? ""
            for name in ["apps", "control"] { try makePrivateDirectory("\(self.directory)/\(name)") }
            let root = self.directory
            let services = apps.compactMap { app in
                app.busName.map { ($0, "/bin/sh \(Self.quoted("\(Self.home(of: app.identifier, in: root)).sh"))") }
            }
            bus = try PrivateBus(PrivateBus.Options(services: Dictionary(services) { first, _ in first }))
        } catch {
            throw TestDeviceError(.deviceFailed, "the device's bus does not start: \(systemReason(error))")
        }
    }

    var state: String { "\(directory)/broker" }
    private var configurationDirectory: String { "\(directory)/configuration" }
    private var configuration: String { "\(configurationDirectory)/managed-configuration.json" }

    var brokerText: String {
        (brokerOutput.withLock { $0 } + [broker.withLock { $0 }?.errorText ?? ""]).joined(separator: "\n")
    }

    func home(of app: String) -> String { Self.home(of: app, in: directory) }

    private static func home(of app: String, in directory: String) -> String { "\(directory)/apps/\(fileName(app))" }

    /// Converts an identifier, which may contain any characters, to a file name.
    static func fileName(_ identifier: String) -> String {
        let name = identifier.map { $0.isASCII && ($0.isLetter || $0.isNumber || "._-".contains($0)) ? $0 : "_" }
        return name.allSatisfy { $0 == "." } ? "_" : String(name.prefix(120))
    }

    // MARK: Configuration

    /// Writes the managed configuration and, next to it, the manifests of the apps.
    func configure(
        _ rule: CleanupRule,
        organization: String,
        allowedUsers: AllowedPeople?,
        apps: [DeviceApp]
    ) throws(TestDeviceError) {
        var settings: [String: JSONValue] = [
            "sharedDeviceMode": .boolean(true), "organization": .string(organization), "passwordSignIn": .boolean(true),
        ]
        settings["allowedUsers"] = allowedUsers?.json
        for app in apps where app.description.allowedUsers != nil {
            guard app.description.isEnrolled, !ProgramStart.isScript(app.executable) else {
                throw TestDeviceError(
                    .deviceFailed,
                    "\(app.identifier) has allowedUsers and no manifest, because it is a script or not enrolled; name a program"
                )
            }
        }
        if rule != .advisory {
            settings["cleanupPolicy"] = .string(rule.policy.rawValue)
            // Then the kit's own app, scripts and apps in the test's process can take part without a manifest.
            settings["requiresEnrolment"] = .boolean(false)
            if let timeout = rule.timeout { settings["cleanupTimeout"] = .number(timeout) }
        }
        try write(settings, to: configuration)
        self.settings.withLock { [settings] in $0 = settings }
        for app in apps where app.description.isEnrolled && !ProgramStart.isScript(app.executable) {
            var manifest: [String: JSONValue] = [:]
            manifest["busName"] = app.description.busName.map { .string($0) }
            manifest["allowedUsers"] = app.description.allowedUsers?.json
            try enrol(app.identifier, executable: app.executable, manifest)
        }
    }

    private func enrol(
        _ identifier: String,
        executable: String,
        _ manifest: [String: JSONValue] = [:]
    ) throws(TestDeviceError) {
        var manifest = manifest
        manifest["id"] = .string(identifier)
        manifest["executable"] = .string(URL(fileURLWithPath: executable).resolvingSymlinksInPath().path)
        try write(manifest, to: "\(configurationDirectory)/apps/\(Self.fileName(identifier)).json")
    }

    /// Configures the end of a shift in six hours, and a warning of a day before.
    func configureWarning() throws(TestDeviceError) {
        var seconds = time(nil) + 6 * 3600
        var parts = tm()
        localtime_r(&seconds, &parts)
        let text = [parts.tm_hour, parts.tm_min].map { ($0 < 10 ? "0" : "") + "\($0)" }.joined(separator: ":")
        var settings = settings.withLock { $0 }
        settings["shiftEnds"] = .array([.string(text)])
        settings["signOutWarning"] = .number(86_400)
        try write(settings, to: configuration)
    }

    /// Configures a lock after inactivity, and a manifest that makes this process the screen program.
    ///
    /// - Parameter seconds: The time without activity; `nil` means that no session is locked any more. A locked session
    ///   stays locked, over a restart of the broker as well.
    func configureLock(after seconds: Double?) throws(TestDeviceError) {
        let settings = settings.withLock { settings in
            settings["inactivityAction"] = .string("lock")
            settings["lockedTime"] = .number(86_400)
            settings["inactivityTimeout"] = seconds.map { .number($0) }
            return settings
        }
        try enrol(BrokerProtocol.screenIdentifier, executable: "/proc/self/exe")
        try write(settings, to: configuration)
    }

    private func write(_ object: [String: JSONValue], to path: String) throws(TestDeviceError) {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
        do {
            let files = FileManager.default
            try files.createDirectory(atPath: "\(configurationDirectory)/apps", withIntermediateDirectories: true)
            try encoder.encode(object).write(to: URL(fileURLWithPath: path), options: .atomic)
            // The broker rejects a configuration that other users may write to.
            try files.setAttributes([.posixPermissions: 0o644], ofItemAtPath: path)
        } catch {
            throw TestDeviceError(.filesFailed, "could not write the device's configuration: \(systemReason(error))")
        }
    }

    static func quoted(_ text: String) -> String { "'\(text.replacing("'", with: "'\\''"))'" }

    // MARK: Broker

    func startBroker() async throws(TestDeviceError) {
        do {
            let process = try await ChildProcess.service(
                programs.broker,
                ["--state", state, "--configuration", configuration, "--bus", bus.address]
            )
            keepOutput()
            broker.withLock { $0 = process }
        } catch {
            throw TestDeviceError(.deviceFailed, "the device's broker does not start: \(error)")
        }
        log.add(DeviceEvent.brokerLane, .started, "the broker serves")
    }

    /// Kills the broker, as a crash would. On return it has ended.
    func killBroker() async {
        guard let process = broker.withLock({ $0 }), process.isRunning else { return }
        log.add(DeviceEvent.brokerLane, .killed, "the broker is killed (SIGKILL)")
        process.kill()
        _ = await process.exitStatus()
    }

    private func keepOutput() {
        guard let earlier = broker.withLock({ $0 })?.errorText, !earlier.isEmpty else { return }
        brokerOutput.withLock { $0.append(earlier) }
    }

    /// Logs every broadcast after which apps ask, while the observation lives.
    func noteBroadcasts() async throws(TestDeviceError) -> NotificationObservation {
        do {
            return try await DarwinNotifyCenter(bus: bus.bus)
                .observe(.sharedModeCurrentAccountChanged, delivery: .immediate) { [log] notification in
                    let sender = notification.sender ?? "an unknown sender"
                    log.add(
                        DeviceEvent.busLane,
                        .broadcast,
                        "carries a broadcast after which apps ask the broker, from \(sender)"
                    )
                }
        } catch {
            throw TestDeviceError(.deviceFailed, "could not observe the broadcasts on the device's bus: \(error)")
        }
    }

    // MARK: Users

    static func password(of user: String) -> String { "correct horse \(user)" }

    /// Creates the users, before the broker's first start. Hashing a password takes a tenth of a second. So only the
    /// first device of a process runs the command, and later devices with the same users get a copy of its files.
    func addUsers(_ users: [String]) async throws(TestDeviceError) {
        guard !users.isEmpty else { return }
        let key = MadeUsers(names: users, administration: programs.administration)
        // The directory may come from an earlier device, with more content than users.
        let isNew = !FileManager.default.fileExists(atPath: state)
        if isNew, let files = Self.made.withLock({ $0[key] }) { return try write(files) }
        for user in users { try await addUser(user) }
        guard isNew else { return }
        let names = (try? FileManager.default.contentsOfDirectory(atPath: state)) ?? []
        let contents = names.map { ($0, FileManager.default.contents(atPath: "\(state)/\($0)")) }
        let files = Dictionary(uniqueKeysWithValues: contents).compactMapValues(\.self)
        Self.made.withLock { $0[key] = files }
    }

    private struct MadeUsers: Hashable {
        let names: [String]
        let administration: String
    }

    /// The files in the state directory after the users are created, by name.
    private static let made = Locked<[MadeUsers: [String: Data]]>([:])

    private func write(_ files: [String: Data]) throws(TestDeviceError) {
        do {
            let manager = FileManager.default
            try manager.createDirectory(
                atPath: state,
                withIntermediateDirectories: false,
                attributes: [.posixPermissions: 0o700]
            )
            for (name, contents) in files {
                let path = "\(state)/\(name)"
                try contents.write(to: URL(fileURLWithPath: path))
                try manager.setAttributes([.posixPermissions: 0o600], ofItemAtPath: path)
            }
        } catch {
            throw TestDeviceError(.deviceFailed, "could not create the users: \(systemReason(error))")
        }
    }

    /// Puts the users into these groups.
    ///
    /// - Parameter members: the users of each group.
    func addGroups(_ members: [String: [String]]) async throws(TestDeviceError) {
        for user in Set(members.values.joined()).sorted() {
            let groups = members.filter { $0.value.contains(user) }.keys.sorted()
            let arguments = ["user", "groups", "--state", state, "--", user] + groups
            try await administer("put \(user) into groups", arguments)
        }
    }

    private func addUser(_ user: String) async throws(TestDeviceError) {
        let name = user.prefix { $0 != "@" }.capitalized
        let arguments = ["user", "add", user, "--display-name", name, "--password-stdin", "--state", state]
        try await administer("create the user \(user)", arguments, input: Self.password(of: user))
    }

    /// Runs the administrator's command.
    private func administer(_ what: String, _ arguments: [String], input: String? = nil) async throws(TestDeviceError) {
        do {
            let command = try ChildProcess(programs.administration, arguments)
            if let input { try command.write(input) }
            try command.closeInput()
            guard await command.exitStatus() == 0 else { throw Problem(command.errorText) }
        } catch {
            throw TestDeviceError(.deviceFailed, "could not \(what): \(error)")
        }
    }
}

struct DevicePrograms: Sendable {
    /// The environment variable with a directory to search before the program's own directory and `PATH`.
    static let environmentVariable = "SHARED_DEVICE_PROGRAMS"

    let broker: String
    let administration: String
    private let directories: [String]

    /// - Parameter directory: the directory that is searched first.
    /// - Throws: ``TestDeviceError/Code/deviceFailed`` if the device's own programs are missing.
    init(directory: String?) throws(TestDeviceError) {
        let environment = ProcessInfo.processInfo.environment
        let beside = URL(fileURLWithPath: ChildProcess.built("x")).deletingLastPathComponent().path
        let named = [directory, environment[Self.environmentVariable]].compactMap(\.self).filter { !$0.isEmpty }
        let path = (environment["PATH"] ?? "").split(separator: ":").map(String.init)
        directories = named + [beside] + path
        broker = try Self.find("shared-device-broker", in: directories, .deviceFailed)
        administration = try Self.find("shared-device", in: directories, .deviceFailed)
    }

    var directory: String { URL(fileURLWithPath: administration).deletingLastPathComponent().path }

    /// The path of an app's program.
    ///
    /// - Throws: ``TestDeviceError/Code/programMissing``.
    func path(of executable: String) throws(TestDeviceError) -> String {
        guard executable.contains("/") else { return try Self.find(executable, in: directories) }
        guard access(executable, X_OK) == 0 else {
            let code = errno
            let isThere = code == EACCES && access(executable, F_OK) == 0
            throw TestDeviceError(
                .programMissing,
                isThere
                    ? "\(executable) is not executable; run: chmod +x \(executable)"
                    : "\(executable) cannot be run (\(String(cString: strerror(code)))); has it been built?"
            )
        }
        return executable
    }

    private static func find(
        _ name: String,
        in directories: [String],
        _ code: TestDeviceError.Code = .programMissing
    ) throws(TestDeviceError) -> String {
        for directory in directories where access("\(directory)/\(name)", X_OK) == 0 { return "\(directory)/\(name)" }
        throw TestDeviceError(
            code,
            "the program \(name) was found neither next to the running program nor in PATH; install it, or build it and "
                + "name its directory in \(environmentVariable)"
        )
    }
}
