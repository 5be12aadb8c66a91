import Foundation
import Glibc
import NotifyCenterTestKit
import SharedDevice
import SharedDeviceTestKit
import Testing

@testable import AppAdapters

@Suite(
    "Enforced cleanup: apps that hang",
    .enabled(if: geteuid() == 0, "only root becomes another user")
)
struct EnforcedCleanupTests {
    private func enrolLate(_ device: LateApps, _ name: String = "late") throws {
        let cleanup = #"{"by": "app", "delete": ["\#(device.data(of: name))"]}"#
        try device.enrol(name, #""executable": "\#(device.program(name))", "cleanup": \#(cleanup)"#)
    }

    /// Puts a file of root into the app's directory, which the app's user cannot remove.
    ///
    /// - Returns: a function that gives the file to that user.
    private func plantForeign(_ device: LateApps, _ name: String = "late") throws -> () -> Void {
        let foreign = "\(device.data(of: name))/foreign"
        succeed(mkdir(foreign, 0o755))
        try "secret of ada".write(toFile: "\(foreign)/file", atomically: false, encoding: .utf8)
        return {
            succeed(chown(foreign, LateApps.user, LateApps.user))
            succeed(chown("\(foreign)/file", LateApps.user, LateApps.user))
        }
    }

    /// Signs in Ada and waits until the late app has her secret.
    private func begin(_ device: LateApps, _ kind: String) async throws -> (desk: ChildProcess, late: ChildProcess) {
        try enrolLate(device)
        let desk = try await device.app("desk", "tidy")
        let late = try await device.app("late", kind)
        try await device.signIn("ada", at: desk)
        try await late.line { $0.hasPrefix("shown open") }
        #expect(try !device.isClean())
        return (desk, late)
    }

    @Test(
        "a suspended app and a forking app are stopped and their data is deleted",
        arguments: ["suspended", "forks"]
    )
    func hangs(kind: String) async throws {
        let device = try await LateApps()
        let (desk, late) = try await begin(device, kind)
        if kind == "forks" {
            try await eventually("the fork writes", within: .seconds(60)) {
                FileManager.default.fileExists(atPath: "\(device.data)/forked")
            }
        }
        if kind == "suspended" { late.suspend() }
        let enforcer = try device.enforcer()
        try await device.signOut()
        try await device.signIn("grace", at: desk)
        #expect(try await device.progress() == "enforced")
        #expect(try device.isClean(), "\(enforcer.errorText)")
        #expect(await late.exitStatus(within: .seconds(60)) >= 128, "a signal ended it")
        // The app's own record still names Ada. The app cleans up again, and shows no account before the present
        // user's.
        let again = try await device.app("late", "tidy")
        try await again.line { $0.hasPrefix("shown open") }
        #expect(again.lines.first { $0.hasPrefix("shown open") }?.contains("grace") == true)
        #expect(!again.lines.contains { $0.contains("\"ada\"") && $0.hasPrefix("shown open") })
    }

    @Test(
        "the next enforcer finishes for a killed one before a user can sign in",
        arguments: [
            .handedOver, .cleaning(.stopping), .cleaning(.stopped), .cleaning(.deleted), .cleaning(.verified),
            .reported,
        ] as [Enforcer.Checkpoint]
    )
    func killed(point: Enforcer.Checkpoint) async throws {
        let device = try await LateApps()
        let (desk, _) = try await begin(device, "hangs")
        let first = try await device.enforcer(at: "\(point)", SIGKILL)
        try await device.signOut()
        #expect(await first.exitStatus(within: .seconds(60)) == 128 + SIGKILL, "\(first.lines) \(first.errorText)")
        if point != .reported { #expect(try await device.progress() != "enforced") }
        let second = try device.enforcer()
        try await device.signIn("grace", at: desk)
        #expect(try await device.progress() == "enforced", "\(second.errorText)")
        #expect(try device.isClean())
    }

    @Test("after a broker restart no user signs in before the enforcer has reported")
    func brokerKilled() async throws {
        let device = try await LateApps()
        let (desk, late) = try await begin(device, "hangs")
        let enforcer = try await device.enforcer(at: "\(Enforcer.Checkpoint.cleaning(.stopped))", SIGSTOP)
        try await device.signOut()
        _ = await late.exitStatus(within: .seconds(60))
        // Before it is suspended, it ends every process of the app that it sees.
        try await eventually("the program stands at its point", within: .seconds(60)) {
            try String(contentsOfFile: "/proc/\(enforcer.identifier)/stat", encoding: .utf8).contains(") T ")
        }
        device.killBroker()
        try await device.startBroker()
        // The late app restarts and is refused, because the enforcer may still delete.
        let tidy = try await device.app("late", "tidy")
        try await eventually("the desk is connected again", within: .seconds(60)) {
            let before = desk.lines.count
            try desk.write("grace")
            try await eventually("an answer", within: .seconds(60)) { desk.lines.count > before }
            return desk.lines.dropFirst(before).contains { $0.hasPrefix("refused grace") }
        }
        #expect(try await device.progress() != "enforced")
        enforcer.resume()
        try await device.signIn("grace", at: desk)
        #expect(try await device.progress() == "enforced", "\(enforcer.lines)")
        #expect(try device.isClean())
        withExtendedLifetime(tidy) {}
    }

    @Test("after a bus restart the next enforcer finishes, and users can sign in")
    func busRestarted() async throws {
        let device = try await LateApps()
        let (desk, late) = try await begin(device, "hangs")
        let first = try await device.enforcer(at: "\(Enforcer.Checkpoint.cleaning(.stopped))", SIGSTOP)
        try await device.signOut()
        _ = await late.exitStatus(within: .seconds(60))
        device.bus.stop()
        first.kill()
        try device.bus.start()
        let second = try device.enforcer()
        try await device.signIn("grace", at: desk)
        #expect(try await device.progress() == "enforced", "\(second.errorText)")
        #expect(try device.isClean())
    }

    @Test(
        "an app on an unresponsive file system does not delay the next try of another",
        .enabled(if: StuckFile.isAllowed, "nobody but root can mount here")
    )
    func stuckFileSystem() async throws {
        let device = try await LateApps()
        try enrolLate(device, "till")
        let (desk, _) = try await begin(device, "hangs")
        let till = try await device.app("till", "hangs")
        try await till.line { $0.hasPrefix("shown open") }
        let repair = try plantForeign(device, "till")
        let mounted = "\(device.data)/mounted"
        #expect(mkdir(mounted, 0o755) == 0 && chown(mounted, LateApps.user, LateApps.user) == 0)
        let stuck = try await StuckFile(mounted, "getattr")
        let enforcer = try device.enforcer()
        try await device.signOut()
        try await eventually("status names the till's path", within: .seconds(60)) {
            let problems = try await device.status()["enforcementProblems"] as? [String] ?? []
            return problems.contains { $0.contains(device.data(of: "till")) }
        }
        repair()
        try await eventually("the till's data is deleted", within: .seconds(60)) {
            try await device.progress(of: "till") == "enforced"
        }
        #expect(try await device.progress() != "enforced", "\(enforcer.errorText)")
        try desk.write("grace")
        try await desk.line { $0.hasPrefix("refused grace") }
        stuck.end()
        try await device.signIn("grace", at: desk)
        #expect(try await device.progress() == "enforced")
        #expect(try device.isClean(), "\(enforcer.errorText)")
    }

    /// An adapter whose command has Ada's secret and ignores SIGTERM.
    private func enrolAdapter(_ device: LateApps, deleting path: String) throws {
        let command = #"echo secret of ada >\#(device.data)/secret; trap "" TERM; while :; do sleep 0.1; done"#
        let arguments = try String(decoding: JSONEncoder().encode(["/bin/sh", "-c", command]), as: UTF8.self)
        let cleanup = #"{"command": \#(arguments), "delete": ["\#(path)"], "start": "always"}"#
        let program = ChildProcess.built("shared-device-cleanup")
        try device.enrol("late", #""executable": "\#(program)", "cleanup": \#(cleanup)"#)
    }

    @Test("the targets of an adapter's earlier manifest are deleted after it was killed")
    func earlierManifest() async throws {
        let device = try await LateApps()
        try enrolAdapter(device, deleting: device.data)
        let desk = try await device.app("desk", "tidy")
        let adapter = try device.adapter()
        try await device.signIn("ada", at: desk)
        try await eventually("the command runs", within: .seconds(60)) { try !device.isClean() }
        adapter.kill()
        #expect(await adapter.exitStatus(within: .seconds(60)) == 128 + SIGKILL)
        let other = "\(device.directory.path)/late/other"
        #expect(mkdir(other, 0o700) == 0 && chown(other, LateApps.user, LateApps.user) == 0)
        try enrolAdapter(device, deleting: other)
        let enforcer = try device.enforcer()
        try await device.signOut()
        try await device.signIn("grace", at: desk)
        #expect(try await device.progress() == "enforced")
        #expect(try device.isClean(), "\(enforcer.errorText)")
    }

    @Test("a stuck adapter and its program are stopped and the data is deleted")
    func adapterHangs() async throws {
        let device = try await LateApps()
        try enrolAdapter(device, deleting: device.data)
        let desk = try await device.app("desk", "tidy")
        let adapter = try device.adapter()
        try await device.signIn("ada", at: desk)
        try await eventually("the command runs", within: .seconds(60)) { try !device.isClean() }
        adapter.suspend()
        let enforcer = try device.enforcer()
        try await device.signOut()
        try await device.signIn("grace", at: desk)
        #expect(try await device.progress() == "enforced")
        #expect(try device.isClean(), "\(enforcer.errorText)")
    }
}

@Suite("The processes that are killed by their connections")
struct ConnectedProcessesTests {
    private typealias Found = ConnectedProcesses.Found
    private static let (app, stranger, root): (UInt32, UInt32, UInt32) = (2000, 1000, 0)

    private func verdict(
        of connection: UInt32,
        running: Bool? = nil,
        users: Set<UInt32>,
        ownProgram: Bool = false,
        adapter: UInt32? = root
    ) -> Found.Verdict {
        let found = Found(
            connectionUser: connection,
            isConnectionsRunning: running,
            users: users,
            isOwnProgram: ownProgram
        )
        return found.verdict(user: Self.app, adapter: adapter)
    }

    @Test("a process that reuses the number of an ended process is not killed")
    func reusedNumber() {
        #expect(verdict(of: Self.app, users: [Self.app]) == .meant)
        // The bus cannot tell that the connection's process has ended, but the kernel tells the user of the present
        // one.
        #expect(verdict(of: Self.app, users: [Self.stranger]) == .stranger)
        #expect(verdict(of: Self.app, users: [Self.root]) == .stranger)
        // If the bus can tell, even a process of the same user is not mistaken for it.
        #expect(verdict(of: Self.app, running: false, users: [Self.app]) == .ended)
        #expect(verdict(of: Self.app, users: []) == .ended)
    }

    @Test("a root process is killed only if it is the adapter of an app that has one")
    func adapters() {
        #expect(verdict(of: Self.root, users: [Self.root], ownProgram: true) == .meant)
        #expect(verdict(of: Self.root, users: [Self.root]) == .stranger)
        #expect(verdict(of: Self.root, users: [Self.root], ownProgram: true, adapter: nil) == .stranger)
        #expect(verdict(of: Self.root, users: [Self.stranger], ownProgram: true) == .stranger)
        #expect(verdict(of: Self.stranger, users: [Self.stranger], ownProgram: true) == .stranger)
    }
}
