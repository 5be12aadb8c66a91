import DBus
import Glibc
import NotifyCenter
@_spi(Extensions) import NotifyCenterTestKit
import Testing

/// Names that belong to users, on a bus that several users share. Only root can start processes of other users.
@Suite(.enabled(if: geteuid() == 0 && PrivateBus.Daemon.chosen == .daemon, "root alone has several users"))
struct OtherUsersTests {
    let bus: PrivateBus
    let (root, owner, stranger): (Probe, Probe, Probe)

    init() throws {
        var options = PrivateBus.Options()
        options.admitsOtherUsers = true
        bus = try PrivateBus(options)
        root = try Probe(bus.environment)
        // A bus accepts only users that the machine knows. Every Linux has `nobody` and `daemon`.
        owner = try Probe(bus.environment, asUser: 65_534)
        stranger = try Probe(bus.environment, asUser: 1)
    }

    // Rules, a.4, a.5 and a.9
    @Test func aUsersNameIsForThatUserAndRoot() async throws {
        let notifyd = try await startNotifyd(on: bus)
        defer { notifyd.kill() }
        let name = "user.uid.65534.menu"
        let (rootsToken, ownersToken) = (
            try await root.register("dispatch", name), try await owner.register("dispatch", name)
        )
        let refused = try await stranger.replies(
            "check \(name)",
            "plain \(name)",
            "dispatch \(name)",
            "post \(name)",
            "post user.uid.foo"
        )
        #expect(refused == ["status 7"])
        #expect(try await owner.ask("post user.uid.655340") == "status 7")
        for (count, poster) in [(1, owner), (2, root)] {
            #expect(try await poster.ask("post \(name)") == "status 0")
            try await eventually { root.calls(rootsToken) == count && owner.calls(ownersToken) == count }
        }
        // A post arrives even if its process ends at once.
        let program = ChildProcess.built("notifyutil")
        for count in 3...5 {
            let poster = try ChildProcess(as: 65_534, program, ["-p", name], environment: bus.environment)
            #expect(await poster.exitStatus() == 0)
            try await eventually { root.calls(rootsToken) == count }
        }
    }

    // Rules, a.13: changes that stat reports need no right to read.
    @Test func aFileThatMayNotBeReadIsMonitoredUnlessItsDirectoryMayNotBeSearched() async throws {
        var files: [(path: String, mode: mode_t, token: Int32)] = []
        var folders: [TemporaryDirectory] = []
        func write(_ path: String, _ mode: mode_t) {
            let file = open(path, O_WRONLY | O_CREAT | O_APPEND, mode)
            #expect(Glibc.write(file, "x", 1) == 1)
            close(file)
        }
        for directoryMode in [0o755, 0o711] as [mode_t] {
            let folder = try TemporaryDirectory("notify-paths")
            folders.append(folder)
            chmod(folder.path, directoryMode)
            for mode in [0o000, 0o200] as [mode_t] {
                let path = "\(folder.path)/file-\(mode)"
                write(path, mode)
                let token = try await owner.register("dispatch", "menu")
                // The kernel has few inotify instances, and frees those of ended processes with a delay.
                try await eventually("the path is monitored") {
                    try await owner.ask("monitor \(token) \(path) 0") == "status 0"
                }
                files.append((path, mode, token))
            }
        }
        // A change may be reported twice, by the kernel and by the look each second.
        func isTold(_ what: String, _ deed: (String, mode_t) -> Void) async throws {
            let before = files.map { owner.calls($0.token) }
            for file in files { deed(file.path, file.mode) }
            try await eventually("\(what) of each is told") {
                zip(files, before).allSatisfy { owner.calls($0.token) > $1 }
            }
        }
        try await isTold("the write", write)
        try await isTold("the deletion") { path, _ in unlink(path) }
        try await isTold("the creation", write)
        let folder = try TemporaryDirectory("notify-paths")
        chmod(folder.path, 0o755)
        mkdir("\(folder.path)/private", 0o700)
        let token = try await owner.register("dispatch", "menu")
        try await eventually("the path is refused") {
            try await owner.ask("monitor \(token) \(folder.path)/private/file 0") == "status 7"
        }
    }

    // Another user's process that owns the name of the queue of registered processes gains nothing, and does no harm.
    @Test func theOwnerOfTheQueuesNameDoesNoHarm() async throws {
        _ = try await stranger.register("check", "menu")
        let connection = try DBusConnection.open(bus.bus)
        try await eventually("the stranger owns the name") {
            try await connection.owner(of: NotifydProtocol.clientsBusName) != nil
        }
        stranger.process.suspend()
        let token = try await root.register("check", "menu")
        let notifyd = try await startNotifyd(on: bus)
        defer { notifyd.kill() }
        #expect(try await root.ask("set \(token) 5") == "status 0")
        #expect(try await root.ask("get \(token)") == "state 5")
    }
}
