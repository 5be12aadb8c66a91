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

    /// Root's file in the app's directory, which the app's user may not remove.
    ///
    /// - Returns: gives it to that user.
    private func plantForeign(_ device: LateApps, _ name: String = "late") throws -> () -> Void {
        let foreign = "\(device.data(of: name))/foreign"
        succeed(mkdir(foreign, 0o755))
        try "secret of ada".write(toFile: "\(foreign)/file", atomically: false, encoding: .utf8)
        return {
            succeed(chown(foreign, LateApps.user, LateApps.user))
            succeed(chown("\(foreign)/file", LateApps.user, LateApps.user))
        }
    }

    /// Ada is signed in, and the late app has her secret.
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
        "a suspended app, and one that forks away, is stopped and its data deleted",
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
        // The app's own record names Ada still: it cleans up what is gone, shows nobody before, and then the present person.
        let again = try await device.app("late", "tidy")
        try await again.line { $0.hasPrefix("shown open") }
        #expect(again.lines.first { $0.hasPrefix("shown open") }?.contains("grace") == true)
        #expect(!again.lines.contains { $0.contains("\"ada\"") && $0.hasPrefix("shown open") })
    }

    @Test(
        "the program is killed at any point, and the next one finishes; nobody signs in before",
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

    @Test("the broker starts anew while the program deletes: nobody signs in before it has reported to the new one")
    func brokerKilled() async throws {
        let device = try await LateApps()
        let (desk, late) = try await begin(device, "hangs")
        let enforcer = try await device.enforcer(at: "\(Enforcer.Checkpoint.cleaning(.stopped))", SIGSTOP)
        try await device.signOut()
        _ = await late.exitStatus(within: .seconds(60))
        // Until it stands there, it ends each process of the app that it sees.
        try await eventually("the program stands at its point", within: .seconds(60)) {
            try String(contentsOfFile: "/proc/\(enforcer.identifier)/stat", encoding: .utf8).contains(") T ")
        }
        device.killBroker()
        try await device.startBroker()
        // The late app comes back, and is refused: the program may still delete.
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

    @Test("the bus starts anew while the program deletes: the next one finishes, and nobody is kept out for ever")
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
        "an app whose file system does not answer keeps no other one waiting for its next try",
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

    /// An adapter whose command has Ada's secret, and does not end when it is asked to.
    private func enrolAdapter(_ device: LateApps, deleting path: String) throws {
        let command = #"echo secret of ada >\#(device.data)/secret; trap "" TERM; while :; do sleep 0.1; done"#
        let arguments = try String(decoding: JSONEncoder().encode(["/bin/sh", "-c", command]), as: UTF8.self)
        let cleanup = #"{"command": \#(arguments), "delete": ["\#(path)"], "start": "always"}"#
        let program = ChildProcess.built("shared-device-cleanup")
        try device.enrol("late", #""executable": "\#(program)", "cleanup": \#(cleanup)"#)
    }

    @Test("what an adapter's earlier manifest named is deleted, too, where the adapter was killed before it could")
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

    @Test("an adapter that hangs is stopped with its program, and its data deleted")
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

@Suite("Whose process is killed when an app is stopped by its connections")
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

    @Test("a process that has the number of one that has ended is not killed, whosever it is")
    func reusedNumber() {
        #expect(verdict(of: Self.app, users: [Self.app]) == .meant)
        // The bus cannot tell that the connection's process has ended, but the kernel says whose the present one is.
        #expect(verdict(of: Self.app, users: [Self.stranger]) == .stranger)
        #expect(verdict(of: Self.app, users: [Self.root]) == .stranger)
        // Where the bus can, not even a process of the same user is taken for it.
        #expect(verdict(of: Self.app, running: false, users: [Self.app]) == .ended)
        #expect(verdict(of: Self.app, users: []) == .ended)
    }

    @Test("of root's processes only an adapter is killed, and only where the app has one")
    func adapters() {
        #expect(verdict(of: Self.root, users: [Self.root], ownProgram: true) == .meant)
        #expect(verdict(of: Self.root, users: [Self.root]) == .stranger)
        #expect(verdict(of: Self.root, users: [Self.root], ownProgram: true, adapter: nil) == .stranger)
        #expect(verdict(of: Self.root, users: [Self.stranger], ownProgram: true) == .stranger)
        #expect(verdict(of: Self.stranger, users: [Self.stranger], ownProgram: true) == .stranger)
    }
}
