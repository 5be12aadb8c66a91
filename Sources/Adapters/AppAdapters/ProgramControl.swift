package import DeviceConfiguration
import Glibc
@_spi(Extensions) import SharedDevice

/// Stops a program with all its processes, and starts it.
public protocol ProgramControl: Sendable {
    /// A printable name.
    var name: String { get }

    /// Stops the program. On return no visible process of it is left.
    ///
    /// - Throws: ``AdapterFailure`` if a process does not end or the program does not exist.
    func stop() async throws(AdapterFailure)

    /// Whether no process of it is left.
    func isStopped() async throws(AdapterFailure) -> Bool

    /// Starts the program; does nothing if it runs.
    func start() async throws(AdapterFailure)
}

/// The failure of an adapter's task: the attempt, the cause and the remedy.
public struct AdapterFailure: Error, Sendable, Hashable, CustomStringConvertible {
    public let description: String
    /// The system's error number, where the caller needs it; otherwise 0.
    let code: CInt

    /// - Parameters:
    ///   - failure: the attempt and the cause, for instance “stop NAME: it does not end”. The cause may end with a full
    ///     stop.
    public init(_ failure: String, remedy: String) { self.init(failure, code: 0, remedy: remedy) }

    init(_ failure: String, code: CInt, remedy: String) {
        description = "could not \(failure)\(failure.hasSuffix(".") ? "" : ".") \(remedy)"
        self.code = code
    }

    /// - Parameter description: all parts.
    init(_ description: String) { (self.description, code) = (description, 0) }

    /// A program that has processes although they were killed.
    static func isKilled(_ name: String, left: some Sequence<pid_t>) -> AdapterFailure {
        AdapterFailure(
            "stop \(name): it does not end, although it was killed; left: \(ProcessTree.describe(left))",
            remedy:
                "A process that waits for a device cannot be killed: see ps -o pid,stat,wchan, and restart the device"
        )
    }
}

/// How long a program may take to exit by itself, and after it is killed.
public struct StopPatience: Sendable {
    /// From the request to exit.
    public var asked: Duration = .seconds(5)
    /// From the kill, which takes effect unless the process waits for a device.
    public var killed: Duration = .seconds(10)
    /// The interval of polling, where the kernel reports no event.
    static let look = Duration.milliseconds(10)

    public init() {}
}

/// Waits without blocking a thread until a condition holds. Returns whether it held in time.
func holds(
    within patience: Duration,
    _ condition: () async throws(AdapterFailure) -> Bool
) async throws(AdapterFailure) -> Bool {
    let deadline = ContinuousClock.now + patience
    while true {
        if try await condition() { return true }
        guard ContinuousClock.now < deadline else { return false }
        // Not cancelled with its task, because a cleanup that has begun must finish.
        await Task { try? await Task.sleep(for: StopPatience.look) }.value
    }
}

extension String {
    /// The first line of a program's output; `nil` if there is none.
    var firstLine: String? { split(separator: "\n").first.map(String.init) }
}

extension AppCleanup {
    /// The control that stops and starts the app's program. The directory of the adapter's record of the app marks the
    /// processes of a command.
    package func program(mark: String) -> any ProgramControl {
        switch (program, cleaner) {
        case (.unit(let name), _): UnitControl(name, isSystem: geteuid() == 0)
        case (.processes(let path), _): AppProcesses(name: path, mark: .executable(path), user: user.number)
        case (.flatpak(let id), .app):
            AppProcesses(name: program.description, mark: .flatpak(id), user: user.number)
        case (.flatpak, .adapter), (.command, _): OwnedCommand(settings(mark: mark))
        }
    }

    private func settings(mark: String) -> OwnedCommand.Settings {
        var settings = OwnedCommand.Settings(mark: mark, command: command ?? [])
        settings.user = user.number
        if let data {
            settings.environment = AdapterEnvironment.variables(data: data)
                .merging(preset?.environment ?? [:]) { $1 }
            settings.directories = AdapterEnvironment.directories(data: data) + (preset?.directories(data: data) ?? [])
            settings.markingWords = preset?.place(data: data) ?? []
        } else if let home = user.home {
            settings.environment["HOME"] = home
        }
        if user.number != geteuid() {
            settings.launcher =
                ["/proc/self/exe", "launch", "--user", "\(user.number)"]
                + settings.directories.flatMap { ["--directory", $0] } + ["--"]
        }
        if case .flatpak(let name) = program {
            settings.killer = ["flatpak", "kill", name]
            // The list of Flatpak instances is in the user's runtime directory.
            if user.number != geteuid() {
                let user = "\(user.number)"
                settings.killer =
                    ["/proc/self/exe", "launch", "--user", user, "--", "env", "XDG_RUNTIME_DIR=/run/user/\(user)"]
                    + settings.killer
            }
        }
        return settings
    }
}

/// The directories that a program expects.
package enum ProgramDirectories {
    /// Creates the missing directories, with access for the user of this process only. The first contains the others.
    package static func make(_ paths: [String]) throws(AdapterFailure) {
        for path in paths {
            do {
                try makePrivateDirectory(path)
            } catch {
                let user = (try? SystemUser(number: geteuid()))?.name ?? "\(geteuid())"
                let first = paths.first ?? path
                let code = error.code
                let isForbidden = [EACCES, EPERM, ENOENT].contains(code)
                throw AdapterFailure(
                    "make \(path) as \(user): \(String(cString: strerror(code)))",
                    remedy: isForbidden
                        ? "\(path == first ? "Make it" : "Give \(first) to \(user)"): install -d -m 700 -o \(user) \(first)"
                        : "See what is at this path, and which file system it is on"
                )
            }
        }
    }
}
