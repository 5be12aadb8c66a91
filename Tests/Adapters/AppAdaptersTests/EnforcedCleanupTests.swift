import Foundation
import Glibc
import NotifyCenterTestKit
import Testing

@testable import AppAdapters

@Suite("Enforced cleanup: apps that hang", .needsRoot)
struct EnforcedCleanupTests {
    /// Signs in Ada and waits until the late app has her secret.
    private func begin(_ device: LateApps, _ kind: String) async throws -> (desk: ChildProcess, late: ChildProcess) {
        try device.enrolApp("late")
        let desk = try await device.app("desk", "tidy")
        let late = try await device.app("late", kind)
        try await device.signIn("ada", at: desk)
        try await late.line { $0.hasPrefix("shown open") }
        #expect(try !device.isClean())
        return (desk, late)
    }

    /// Signs in Grace after the enforced cleanup, and expects that no secret is left.
    private func expectEnforced(_ device: LateApps, _ desk: ChildProcess, by enforcer: ChildProcess) async throws {
        try await device.signIn("grace", at: desk)
        #expect(try await device.progress() == "enforced", "\(enforcer.lines) \(enforcer.errorText)")
        #expect(try device.isClean(), "\(enforcer.lines) \(enforcer.errorText)")
    }

    @Test("a suspended app and a forking app are stopped and their data is deleted", arguments: ["suspended", "forks"])
    func hangs(kind: String) async throws {
        let device = try await LateApps()
        let (desk, late) = try await begin(device, kind)
        if kind == "forks" {
            try await eventually("the fork writes", within: .seconds(60)) { exists("\(device.data)/forked") }
        }
        if kind == "suspended" { late.suspend() }
        let enforcer = try device.enforcer()
        try await device.signOut()
        try await expectEnforced(device, desk, by: enforcer)
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
        let first = try await device.enforcer(at: point, SIGKILL)
        try await device.signOut()
        #expect(await first.exitStatus(within: .seconds(60)) == 128 + SIGKILL, "\(first.lines) \(first.errorText)")
        if point != .reported { #expect(try await device.progress() != "enforced") }
        try await expectEnforced(device, desk, by: try device.enforcer())
    }

    @Test("after a broker restart no user signs in before the enforcer has reported")
    func brokerKilled() async throws {
        let device = try await LateApps()
        let (desk, late) = try await begin(device, "hangs")
        let enforcer = try await device.enforcer(at: .cleaning(.stopped), SIGSTOP)
        try await device.signOut()
        _ = await late.exitStatus(within: .seconds(60))
        // The enforcer ends every process of the app that it sees, and suspends itself at its checkpoint.
        try await eventually("the enforcer is suspended", within: .seconds(60)) { try enforcer.isInState("T") }
        device.killBroker()
        try await device.startBroker()
        // The late app restarts and is refused, because the enforcer may still delete.
        let tidy = try await device.app("late", "tidy")
        try await eventually("the desk is connected again", within: .seconds(60)) {
            let before = desk.lines.count
            try desk.write("grace")
            try await eventually("the desk responds", within: .seconds(60)) { desk.lines.count > before }
            return desk.lines.dropFirst(before).contains { $0.hasPrefix("refused grace") }
        }
        #expect(try await device.progress() != "enforced")
        enforcer.resume()
        try await expectEnforced(device, desk, by: enforcer)
        withExtendedLifetime(tidy) {}
    }

    @Test("after a bus restart the next enforcer finishes, and users can sign in")
    func busRestarted() async throws {
        let device = try await LateApps()
        let (desk, late) = try await begin(device, "hangs")
        let first = try await device.enforcer(at: .cleaning(.stopped), SIGSTOP)
        try await device.signOut()
        _ = await late.exitStatus(within: .seconds(60))
        device.bus.stop()
        first.kill()
        try device.bus.start()
        try await expectEnforced(device, desk, by: try device.enforcer())
    }

    @Test(
        "an app on an unresponsive file system does not delay the next try of another",
        .enabled(if: StuckFile.isAllowed, "only root can mount here")
    )
    func stuckFileSystem() async throws {
        let device = try await LateApps()
        try device.enrolApp("till")
        let (desk, _) = try await begin(device, "hangs")
        let till = try await device.app("till", "hangs")
        try await till.line { $0.hasPrefix("shown open") }
        // A file of root, which the app's user cannot remove.
        let foreign = "\(device.data(of: "till"))/foreign"
        makeDirectory(foreign, mode: 0o755)
        try writeFile("secret of ada", to: "\(foreign)/file")
        let mounted = "\(device.data)/mounted"
        makeDirectory(mounted, mode: 0o755, owner: LateApps.user)
        let stuck = try await StuckFile(mounted, "getattr")
        let enforcer = try device.enforcer()
        try await device.signOut()
        try await eventually("status names the till's path", within: .seconds(60)) {
            let problems = try await device.status()["enforcementProblems"] as? [String] ?? []
            return problems.contains { $0.contains(device.data(of: "till")) }
        }
        for path in [foreign, "\(foreign)/file"] { succeed(chown(path, LateApps.user, LateApps.user)) }
        try await eventually("the till's data is deleted", within: .seconds(60)) {
            try await device.progress(of: "till") == "enforced"
        }
        #expect(try await device.progress() != "enforced", "\(enforcer.errorText)")
        try desk.write("grace")
        try await desk.line { $0.hasPrefix("refused grace") }
        stuck.end()
        try await expectEnforced(device, desk, by: enforcer)
    }

    /// Enrols an adapter whose command stores a secret and ignores SIGTERM.
    private func enrolAdapter(_ device: LateApps, deleting path: String) throws {
        let command = #"echo secret of ada >\#(device.data)/secret; trap "" TERM; while :; do sleep 0.1; done"#
        let arguments = try String(decoding: JSONEncoder().encode(["/bin/sh", "-c", command]), as: UTF8.self)
        let cleanup = #"{"command": \#(arguments), "delete": ["\#(path)"], "start": "always"}"#
        let program = ChildProcess.built("shared-device-cleanup")
        try device.enrol("late", #""executable": "\#(program)", "cleanup": \#(cleanup)"#)
    }

    @Test("a stuck or killed adapter's program is stopped and its data is deleted", arguments: ["stuck", "killed"])
    func adapter(state: String) async throws {
        let device = try await LateApps()
        try enrolAdapter(device, deleting: device.data)
        let desk = try await device.app("desk", "tidy")
        let adapter = try device.adapter()
        try await device.signIn("ada", at: desk)
        try await eventually("the command runs", within: .seconds(60)) { try !device.isClean() }
        if state == "stuck" { adapter.suspend() }
        if state == "killed" {
            adapter.kill()
            #expect(await adapter.exitStatus(within: .seconds(60)) == 128 + SIGKILL)
            let other = "\(device.directory.path)/late/other"
            makeDirectory(other, owner: LateApps.user)
            try enrolAdapter(device, deleting: other)
        }
        let enforcer = try device.enforcer()
        try await device.signOut()
        try await expectEnforced(device, desk, by: enforcer)
    }
}

@Suite("Which connected processes the enforcer kills")
struct ConnectedProcessesTests {
    @Test("only the app's own processes and its adapter are killed")
    func verdicts() {
        typealias Found = ConnectedProcesses.Found
        let (app, stranger, root): (UInt32, UInt32, UInt32) = (2000, 1000, 0)
        let cases: [(Found, adapter: UInt32?, Found.Verdict)] = [
            (found(app, [app]), root, .meant),
            // The bus does not report whether the connection's process still runs. The kernel reports the users of the
            // process that has its number now.
            (found(app, [stranger]), root, .stranger), (found(app, [root]), root, .stranger),
            // If the bus reports the end, a new process of the same user is not killed either.
            (found(app, [app], isRunning: false), root, .ended), (found(app, []), root, .ended),
            (found(root, [root], isOwnProgram: true), root, .meant), (found(root, [root]), root, .stranger),
            (found(root, [root], isOwnProgram: true), nil, .stranger),
            (found(root, [stranger], isOwnProgram: true), root, .stranger),
            (found(stranger, [stranger], isOwnProgram: true), root, .stranger),
        ]
        for (number, (found, adapter, verdict)) in cases.enumerated() {
            #expect(found.verdict(user: app, adapter: adapter) == verdict, "case \(number): \(found)")
        }
    }

    private func found(
        _ connectionUser: UInt32,
        _ users: Set<UInt32>,
        isRunning: Bool? = nil,
        isOwnProgram: Bool = false
    ) -> ConnectedProcesses.Found {
        .init(connectionUser: connectionUser, isConnectionsRunning: isRunning, users: users, isOwnProgram: isOwnProgram)
    }
}
