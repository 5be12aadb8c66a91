import Basics
import DBus
import Dispatch
import Foundation
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
import Synchronization
import Testing

@testable import AppAdapters

/// A directory in the form of `/proc` that contains this process.
struct PlantedProcesses {
    static let user: UInt32 = 65534
    let directory: TemporaryDirectory

    init() throws {
        directory = try TemporaryDirectory("processes")
        try plant(getpid(), start: 1)
    }

    func path(_ identifier: pid_t, _ name: String) -> String { "\(directory.path)/\(identifier)/\(name)" }

    func plant(thread: pid_t, of identifier: pid_t, flags: Int) throws {
        mkdir(path(identifier, "task"), 0o755)
        try write("S", thread, 1, 2, 5, flags: flags, to: path(identifier, "task/\(thread)"))
    }

    private func write(
        _ state: String,
        _ identifier: pid_t,
        _ parent: pid_t,
        _ threads: Int,
        _ start: Int,
        flags: Int,
        to path: String
    ) throws {
        mkdir(path, 0o755)
        let zeros = { (count: Int) in Array(repeating: "0", count: count) }
        let fields = [state, "\(parent)"] + zeros(4) + ["\(flags)"] + zeros(10) + ["\(threads)", "0", "\(start)"]
        let text = "\(identifier) (a) b) \(fields.joined(separator: " "))\n"
        try text.write(toFile: "\(path)/stat", atomically: true, encoding: .utf8)
    }

    func plant(
        _ identifier: pid_t,
        state: String = "S",
        parent: pid_t = 1,
        threads: Int = 1,
        start: Int = 5,
        environ: String? = nil,
        cmdline: [String]? = nil
    ) throws {
        try write(state, identifier, parent, threads, start, flags: 0, to: "\(directory.path)/\(identifier)")
        try plant("Name:\tab\nUid:\t0\t\(Self.user)\t0\t0\n", in: "status", of: identifier)
        if let environ { try plant(environ, in: "environ", of: identifier) }
        if let cmdline { try plant(cmdline.map { $0 + "\0" }.joined(), in: "cmdline", of: identifier) }
    }

    func plant(_ text: String, in name: String, of identifier: pid_t) throws {
        try text.write(toFile: path(identifier, name), atomically: true, encoding: .utf8)
    }

    func marked(by mark: ProcessTree.Mark, user: UInt32 = Self.user) throws -> Set<pid_t> {
        try ProcessTree(by: mark, user: user, root: directory.path).marked
    }
}

@Suite("The processes of a program are found, or the search fails")
struct ProcessTreeTests {
    private static let user = PlantedProcesses.user

    @Test("processes that cannot be listed or read are an error")
    func unreadable() throws {
        #expect(throws: AdapterFailure.self) {
            try ProcessTree(by: .variable("here"), user: Self.user, root: "/nonexistent")
        }
        // A list without this process is not this system's.
        #expect(throws: AdapterFailure.self) {
            try ProcessTree(by: .variable("here"), user: Self.user, root: TemporaryDirectory("processes").path)
        }
        let planted = try PlantedProcesses()
        func tree() throws -> ProcessTree {
            try ProcessTree(by: .variable("here"), user: Self.user, root: planted.directory.path)
        }
        #expect(try tree().entries.count == 1)
        mkdir("\(planted.directory.path)/7", 0o755)
        #expect(try tree().entries.count == 1, "it has ended")
        mkdir(planted.path(7, "stat"), 0o755)
        let error = #expect(throws: AdapterFailure.self) { try tree() }
        #expect(error?.description.contains("/7/stat") == true)
    }

    @Test("an unreadable environment of the user's process is an error", .needsRoot)
    func unreadableVariables() throws {
        let planted = try PlantedProcesses()
        try planted.plant(7)
        mkdir(planted.path(7, "environ"), 0o755)
        #expect(throws: AdapterFailure.self) { try planted.marked(by: .variable("here")) }
        #expect(try planted.marked(by: .variable("here"), user: 12345).isEmpty, "no process of another user is asked")
        rmdir(planted.path(7, "environ"))
        try planted.plant("A=1\0\(ProcessTree.mark)=here\0", in: "environ", of: 7)
        #expect(try planted.marked(by: .variable("here")) == [7])
        #expect(try planted.marked(by: .variable("elsewhere")).isEmpty)
    }

    @Test("a browser with an overwritten environment is found by a path argument")
    func overwrittenVariables() throws {
        let planted = try PlantedProcesses()
        try planted.plant(7, cmdline: ["browser", "--user-data-dir=/run/sign-in/abc/profile"])
        try planted.plant(8, cmdline: ["browser"])
        #expect(try planted.marked(by: .path("/run/sign-in/abc")) == [7])
        #expect(try planted.marked(by: .path("/run/sign-in/abd")).isEmpty)
        #expect(try planted.marked(by: .variable("/run/sign-in/abc")).isEmpty)
        try planted.plant("\(ProcessTree.mark)=/run/sign-in/abc\0", in: "environ", of: 8)
        #expect(try planted.marked(by: .path("/run/sign-in/abc")) == [7, 8])
    }

    @Test("a program that is no ancestor is found by whole arguments that name its place")
    func words() throws {
        let planted = try PlantedProcesses()
        let mark = ProcessTree.Mark.words(["--profile", "/var/lib/kiosk/profile"], variable: "here")
        let processes: [(pid_t, [String])] = [
            (7, ["firefox", "--profile", "/var/lib/kiosk/profile", "--new-instance"]),
            (8, ["ls", "/var/lib/kiosk/profile"]), (9, ["sh", "-c", "firefox --profile /var/lib/kiosk/profile"]),
            (10, ["firefox", "/var/lib/kiosk/profile", "--profile"]),
            (11, ["firefox", "--profile", "/var/lib/kiosk/profile2"]), (12, ["firefox", "", "--profile"]),
            // Chromium overwrites its arguments in this form.
            (13, ["chromium --profile /var/lib/kiosk/profile --type=renderer", "", ""]),
            (14, ["chromium --profile /var/lib/kiosk/profile"]),
            (15, ["chromium --profile /var/lib/kiosk/profile2", ""]),
            (16, ["sh -c", "chromium --profile /var/lib/kiosk/profile"]),
        ]
        for (identifier, arguments) in processes { try planted.plant(identifier, cmdline: arguments) }
        #expect(try planted.marked(by: mark) == [7, 13, 14])
        try planted.plant("\(ProcessTree.mark)=here\0", in: "environ", of: 8)
        #expect(try planted.marked(by: mark) == [7, 8, 13, 14])
        // Process 7 is this process's parent, and process 13 is the parent of that.
        let words = ["firefox", "--profile", "/var/lib/kiosk/profile"]
        try planted.plant(7, parent: 13, cmdline: words)
        try planted.plant(getpid(), parent: 7)
        #expect(try planted.marked(by: mark) == [8, 14])
    }

    @Test("a process that reuses a number is not signalled")
    func passedOn() throws {
        let child = try ChildProcess("sleep", ["1000"])
        let planted = try PlantedProcesses()
        try planted.plant(child.identifier, start: 5)
        let tree = try ProcessTree(by: .variable("here"), user: Self.user, root: planted.directory.path)
        #expect(try tree.descriptor(of: child.identifier)?.identifier == child.identifier)
        try planted.plant(child.identifier, start: 6)
        #expect(try tree.descriptor(of: child.identifier) == nil)
    }

    @Test("the end of a program is seen even after the deadline")
    func lastLook() async throws {
        let mark = "last-look-\(UUID().uuidString)"
        let child = try ChildProcess("sleep", ["1000"], environment: [ProcessTree.mark: mark])
        try await eventually("the program is found") {
            try ProcessTree(by: .variable(mark), user: geteuid()).marked == [child.identifier]
        }
        let isEnded = try await onThread { () throws(AdapterFailure) in
            try ProcessTree.end(by: SIGKILL, until: .now + .seconds(60)) { () throws(AdapterFailure) in
                let tree = try ProcessTree(by: .variable(mark), user: geteuid())
                return (tree, tree.marked)
            }
        }
        #expect(isEnded)
    }

    @Test(
        "a program whose first thread has ended is found and stopped",
        arguments: ["executable", "path", "words", "variable"]
    )
    func threadedProgram(mark: String) async throws {
        let directory = try TemporaryDirectory("threaded-program")
        // A copy of the program, so that stopping it spares the programs of other tests.
        let program = "\(directory.path)/program"
        try FileManager.default.copyItem(atPath: ChildProcess.built("adapter-probe"), toPath: program)
        let variables = mark == "variable" ? [ProcessTree.mark: directory.path] : [:]
        let child = try ChildProcess(program, ["threaded-writer", directory.path], environment: variables)
        try await eventually("the first thread has ended, and another writes", within: .seconds(60)) {
            try child.isInState("Z") && exists("\(directory.path)/forked")
        }
        let marks: [String: ProcessTree.Mark] = [
            "executable": .executable(program), "path": .path(directory.path), "variable": .variable(directory.path),
            "words": .words(["threaded-writer", directory.path], variable: "\(directory.path)/none"),
        ]
        var patience = StopPatience()
        // The program ignores SIGTERM.
        patience.asked = .milliseconds(100)
        let found = try #require(marks[mark])
        let processes = AppProcesses(name: program, mark: found, user: geteuid(), patience: patience)
        #expect(try await !processes.isStopped())
        try await processes.stop()
        #expect(try await processes.isStopped())
        #expect(await child.exitStatus(within: .seconds(60)) == 128 + SIGKILL)
    }

    /// Scans one process, which responds at once or when `end` is signalled. Returns the error, or "answered".
    private func look(
        at process: pid_t,
        of user: UInt32,
        _ stuck: ProcessScan.Stuck,
        _ end: DispatchSemaphore?
    ) -> String {
        let process = ProcessScan.Process(identifier: process, start: 5)
        do throws(AdapterFailure) {
            let patience: Duration = end == nil ? .seconds(60) : .milliseconds(30)
            _ = try ProcessScan.run(of: user, patience: patience, stuck: stuck) { scan throws(AdapterFailure) in
                try scan.reads(process) { () throws(AdapterFailure) in
                    end?.wait()
                    return try ProcessTree(by: nil, user: Self.user)
                }
            }
            return "answered"
        } catch {
            return error.description
        }
    }

    @Test("an unresponsive process or many slow ones are an error, without a delay")
    func stuck() async throws {
        try await withTaskExecutorPreference(OwnThread()) {
            try await judgeStuck()
            try await judgeSlow()
        }
    }

    private func judgeStuck() async throws {
        let stuck = ProcessScan.Stuck()
        let end = DispatchSemaphore(value: 0)
        for process in 1...pid_t(ProcessScan.Stuck.mostOfUser) {
            #expect(look(at: process, of: 1, stuck, end).contains("the process \(process):"))
        }
        // Each unresponsive process blocks at most one thread. After `mostOfUser` of them, the scan reads no further
        // process of the same user, but still reads those of other users.
        #expect(look(at: 3, of: 1, stuck, end).contains("the process 3:"))
        #expect(look(at: 99, of: 1, stuck, end).contains("the processes 1, 2, 3"))
        #expect(stuck.processes(of: 1).count == ProcessScan.Stuck.mostOfUser)
        #expect(look(at: 3, of: 2, stuck, nil) == "answered")
        for _ in 1...ProcessScan.Stuck.mostOfUser { end.signal() }
        try await eventually("the reads have ended", within: .seconds(60)) { stuck.processes(of: 1).isEmpty }
        #expect(look(at: 3, of: 1, stuck, nil) == "answered")
    }

    private func judgeSlow() async throws {
        let stuck = ProcessScan.Stuck()
        let turns = Locked(0)
        let error = #expect(throws: AdapterFailure.self) {
            try ProcessScan.run(of: 1, patience: .milliseconds(150), stuck: stuck) { scan throws(AdapterFailure) in
                // `reads` throws once the scan is abandoned, which ends the loop.
                while true {
                    try scan.reads(ProcessScan.Process(identifier: 7, start: 5)) { _ = usleep(10_000) }
                    turns.withLock { $0 += 1 }
                }
            }
        }
        #expect(error?.description.contains("of user 1") == true)
        let count = turns.withLock { $0 }
        try await eventually("the scan ends") {
            let before = turns.withLock { $0 }
            try await Task.sleep(for: .milliseconds(200))
            return turns.withLock { $0 } == before
        }
        #expect(count > 0 && stuck.processes(of: 1).isEmpty)
    }

    @Test("a process whose first thread has ended is found by another, or is an error")
    func otherThreads() throws {
        let planted = try PlantedProcesses()
        try planted.plant(7, state: "Z", threads: 2)
        let marks: [ProcessTree.Mark] = [
            .executable("/p"), .flatpak("org.example.notes"), .words(["--p"], variable: "/p"), .path("/p"),
        ]
        for mark in marks {
            try planted.plant(thread: 8, of: 7, flags: 0)
            let error = #expect(throws: AdapterFailure.self, "\(mark)") { try planted.marked(by: mark) }
            #expect(error?.description.contains("/7/task") == true, "\(mark)")
            // PF_EXITING
            try planted.plant(thread: 8, of: 7, flags: 4)
            #expect(try planted.marked(by: mark).isEmpty, "\(mark)")
        }
        try planted.plant(thread: 8, of: 7, flags: 0)
        let root = "\(planted.directory.path)/root"
        try writeFile("[Application]\nname=org.example.notes\n", to: "\(root)/.flatpak-info")
        succeed(symlink(root, planted.path(7, "task/8/root")))
        #expect(try planted.marked(by: .flatpak("org.example.notes")) == [7])
        #expect(try planted.marked(by: .flatpak("org.example.other")).isEmpty)
    }
}

private enum Hierarchy {
    static let mount = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].first { mount in
        let path = "\(mount)/notify-center-tests-\(getpid())"
        guard access("\(mount)/cgroup.procs", F_OK) == 0, mkdir(path, 0o755) == 0 else { return false }
        return rmdir(path) == 0
    }
}

@Suite("A control group", .enabled(if: Hierarchy.mount != nil, "no control group can be made here"))
struct ControlGroupTests {
    @Test("a control group is empty after its last process, and is killed as a whole")
    func killed() async throws {
        let mount = try #require(Hierarchy.mount)
        let name = "/notify-center-tests-\(getpid())-\(UInt32.random(in: 0 ... .max))"
        let group = ControlGroup(name)
        #expect(try group.isEmpty(), "the group does not exist yet")
        for path in [mount + name, mount + name + "/below"] { try #require(mkdir(path, 0o755) == 0) }
        defer { for path in [mount + name + "/below", mount + name] { rmdir(path) } }
        #expect(try group.isEmpty())
        let script =
            "echo $$ >\(mount + name)/below/cgroup.procs; trap '' TERM; sleep 1000 & sleep 1000 & echo there; wait"
        let shell = try ChildProcess("sh", ["-c", script])
        try await shell.line { $0 == "there" }
        #expect(try !group.isEmpty())
        #expect(try group.processes().count == 3 && group.processes().contains(shell.identifier))
        try group.waitUntilEmpty(until: .now + .milliseconds(50))
        #expect(try !group.isEmpty())
        try group.kill()
        try group.waitUntilEmpty(until: .now + .seconds(60))
        #expect(try group.isEmpty() && group.processes().isEmpty)
        #expect(await shell.exitStatus() == 128 + SIGKILL)
    }
}
