import DBus
import DBusService
import Foundation
@_spi(Extensions) import NotifyCenterTestKit
import Synchronization
import Testing

/// A graphical session without a screen, with real input events.
protocol Session: Sendable {
    /// The variables that name the session for its programs.
    var environment: [String: String] { get }

    /// Makes one input event.
    func use() async throws

    /// Ends it as a crash does.
    func kill()
}

enum Sessions {
    /// A program that reports no input of the tests' own session.
    static let none = ["WAYLAND_DISPLAY": "", "DISPLAY": "", "DBUS_SESSION_BUS_ADDRESS": "unix:path=/nonexistent"]

    static func has(_ programs: String...) -> Bool {
        let folders = (ProcessInfo.processInfo.environment["PATH"] ?? "").split(separator: ":")
        return programs.allSatisfy { program in folders.contains { access("\($0)/\(program)", X_OK) == 0 } }
    }

    static let hasSway = has("sway", "wtype") && (geteuid() != 0 || has("setpriv"))
    static let hasXvfb = has("Xvfb", "xdotool")

    /// Runs a command as a user other than root, for whom sway refuses to work.
    static func unprivileged(_ command: [String]) -> [String] {
        geteuid() == 0 ? ["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups"] + command : command
    }

    static func run(_ command: [String], _ environment: [String: String]) async throws {
        let process = try ChildProcess(command[0], Array(command.dropFirst()), environment: environment)
        let status = await process.exitStatus()
        guard status == 0 else { throw Failure(description: "\(command): status \(status): \(process.errorText)") }
    }

    struct Failure: Error, CustomStringConvertible { let description: String }
}

/// sway, with a virtual keyboard by wtype.
final class SwaySession: Session {
    let environment: [String: String]
    let compositor: ChildProcess
    private let directory: TemporaryDirectory

    init() async throws {
        directory = try TemporaryDirectory("sway")
        let path = "\(directory.path)/run"
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
        var attributes: [FileAttributeKey: Any] = [.posixPermissions: 0o700]
        if geteuid() == 0, let nobody = getpwnam("nobody") { attributes[.ownerAccountID] = nobody.pointee.pw_uid }
        try FileManager.default.setAttributes(attributes, ofItemAtPath: path)
        try FileManager.default.setAttributes([.posixPermissions: 0o755], ofItemAtPath: directory.path)
        let command = Sessions.unprivileged(["sway", "--config", "/dev/null"])
        compositor = try ChildProcess(
            command[0],
            Array(command.dropFirst()),
            environment: Sessions.none.merging([
                "HOME": path, "XDG_RUNTIME_DIR": path, "WLR_BACKENDS": "headless", "WLR_LIBINPUT_NO_DEVICES": "1",
                "WLR_RENDERER": "pixman",
            ]) { $1 }
        )
        environment = Sessions.none.merging(["XDG_RUNTIME_DIR": path, "WAYLAND_DISPLAY": "wayland-1"]) { $1 }
        let (compositor, socket) = (compositor, "\(path)/wayland-1")
        try await eventually("sway is ready") {
            guard compositor.isRunning else { throw Sessions.Failure(description: compositor.errorText) }
            return FileManager.default.fileExists(atPath: socket)
        }
    }

    func use() async throws { try await Sessions.run(Sessions.unprivileged(["wtype", "a"]), environment) }

    func kill() { compositor.kill() }
}

/// Xvfb, with keys by the extension XTEST.
final class XSession: Session {
    let environment: [String: String]
    let server: ChildProcess

    init() async throws {
        server = try ChildProcess("Xvfb", ["-displayfd", "1", "-screen", "0", "640x480x24", "-nolisten", "tcp"])
        environment = Sessions.none.merging(["DISPLAY": ":\(try await server.line { Int($0) != nil })"]) { $1 }
    }

    func use() async throws { try await Sessions.run(["xdotool", "key", "a"], environment) }

    func kill() { server.kill() }
}

/// A stand-in for GNOME's Mutter: its interface, on a private session bus.
final class MutterSession: Session {
    private static let name = "org.gnome.Mutter.IdleMonitor"
    private static let path = "/org/gnome/Mutter/IdleMonitor/Core"

    private struct State {
        var lastInput = ContinuousClock.now
        var watches: [UInt32] = []
        var count: UInt32 = 0
    }

    let environment: [String: String]
    private let bus: PrivateBus
    private let connection: DBusConnection
    private let object: Observation
    private let state: Shared

    private final class Shared: Sendable { let state = Mutex(State()) }

    init() async throws {
        bus = try PrivateBus()
        connection = try DBusConnection.open(bus.bus)
        let state = Shared()
        self.state = state
        let idle = DBusInterface.Method("GetIdletime", out: [.init("idletime", "t")]) { _ in
            let unused = ContinuousClock.now - state.state.withLock { $0.lastInput }
            return [.uint64(UInt64(unused / .milliseconds(1)))]
        }
        let watch = DBusInterface.Method("AddUserActiveWatch", out: [.init("id", "u")]) { _ in
            state.state.withLock { state in
                state.count += 1
                state.watches.append(state.count)
                return [.uint32(state.count)]
            }
        }
        object = try connection.export([DBusInterface(Self.name, methods: [idle, watch])], at: Self.path)
        try await connection.requestName(Self.name)
        environment = Sessions.none.merging(["DBUS_SESSION_BUS_ADDRESS": bus.address]) { $1 }
    }

    func use() async throws {
        let fired = state.state.withLock { state in
            state.lastInput = .now
            defer { state.watches = [] }
            return state.watches
        }
        for number in fired {
            try connection.send(
                .signal(path: Self.path, interface: Self.name, member: "WatchFired", arguments: [.uint32(number)])
            )
        }
    }

    func kill() { connection.close() }
}
