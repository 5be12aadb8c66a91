import FoundationEssentials
import Glibc
import Identity
import NotifyCenterTestKit
import SharedDevice
import TestProviders
import Testing

/// Programs as an ordinary user runs them: root reads all memory, and here it is without its rights.
private struct OrdinaryUser {
    let bus: PrivateBus
    let directory: TemporaryDirectory

    init() throws {
        bus = try PrivateBus()
        directory = try TemporaryDirectory("private-memory")
        try FileManager.default.createDirectory(atPath: directory.path + "/apps", withIntermediateDirectories: false)
        let keys = #""sharedDeviceMode": true, "requiresEnrolment": true, "microsoftBroker": true"#
        try write("{\(keys)}", to: "managed-configuration.json")
    }

    func write(_ text: String, to name: String) throws {
        try text.write(toFile: "\(directory.path)/\(name)", atomically: true, encoding: .utf8)
    }

    /// What takes root's rights from a program. setpriv becomes that program, and keeps its number.
    static var rights: [String] {
        geteuid() == 0 ? ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"] : []
    }

    private var environment: [String: String] {
        [
            "XDG_RUNTIME_DIR": directory.path, "DISPLAY": "", "WAYLAND_DISPLAY": "",
            "DBUS_SESSION_BUS_ADDRESS": bus.address, "XDG_DATA_HOME": directory.path + "/data",
            "XDG_DATA_DIRS": directory.path + "/share",
        ]
    }

    func start(_ program: String, _ arguments: [String]) throws -> ChildProcess {
        let words = Self.rights + [program] + arguments
        return try ChildProcess(words[0], Array(words.dropFirst()), environment: environment)
    }

    /// - Parameter wrapper: the words of a command that starts the program.
    func service(_ program: String, _ more: [String] = [], wrapper: [String] = []) async throws -> ChildProcess {
        let configuration = directory.path + "/managed-configuration.json"
        let arguments = ["--bus", bus.address, "--configuration", configuration]
        let words = Self.rights + wrapper + [ChildProcess.built(program)] + arguments + more
        return try await ChildProcess.service(words[0], Array(words.dropFirst()), environment: environment)
    }

    /// Whether a program of the same user reads this file of the process.
    func reads(_ file: String, of process: ChildProcess) async throws -> Bool {
        let reader = try start("cat", ["/proc/\(process.identifier)/\(file)"])
        let status = await reader.exitStatus()
        #expect(status == 0 || reader.errorText.contains("ermission denied"), "\(reader.errorText)")
        return status == 0
    }
}

/// A machine that keeps cores, as large as they become, in a folder of the test's.
private struct CoreFolder {
    /// Starts a program, tells its number, and how it ended. The program ends with it.
    private static let script = """
        import ctypes, os, resource, sys
        limit = resource.getrlimit(resource.RLIMIT_CORE)[1]
        resource.setrlimit(resource.RLIMIT_CORE, (limit, limit))
        os.chdir(sys.argv[1])
        child = os.fork()
        if child == 0:
            ctypes.CDLL(None).prctl(1, 9)
            os.environ["SWIFT_BACKTRACE"] = "enable=no"
            os.execvp(sys.argv[2], sys.argv[2:])
        # One write each: the program writes to the same pipe.
        os.write(1, b"process %d\\n" % child)
        status = os.waitpid(child, 0)[1]
        os.write(1, b"signal %d core %d\\n" % (os.WTERMSIG(status), os.WCOREDUMP(status)))
        """

    let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory("cores") }

    /// The words of a command that starts a program.
    var wrapper: [String] { ["/usr/bin/python3", "-c", Self.script, directory.path] }

    var files: [String] { get throws { try FileManager.default.contentsOfDirectory(atPath: directory.path) } }

    /// The number of the program that was started so.
    func program(of process: ChildProcess) async throws -> Int32 {
        let line = try await process.line { $0.hasPrefix("process ") }
        return try #require(Int32(line.dropFirst("process ".count)))
    }

    /// Has a program end as one with a mistake does.
    ///
    /// - Returns: whether the kernel has kept its memory.
    func leavesCore(_ process: ChildProcess) async throws -> Bool {
        let number = try await program(of: process)
        #expect(kill(number, SIGABRT) == 0)
        let line = try await process.line { $0.hasPrefix("signal ") }
        #expect(line.hasPrefix("signal \(SIGABRT) core "))
        return line.hasSuffix(" 1")
    }
}

/// Looks into the memory of another program, as gcore(1) does.
private enum MemorySearch {
    static let script = """
        import sys
        try:
            memory = open(f"/proc/{sys.argv[1]}/mem", "rb", 0)
            maps = open(f"/proc/{sys.argv[1]}/maps").read()
        except PermissionError:
            sys.exit(print("refused"))
        found = False
        for line in maps.splitlines():
            place, rights = line.split()[:2]
            if not rights.startswith("rw"):
                continue
            start, end = (int(word, 16) for word in place.split("-"))
            try:
                memory.seek(start)
                found |= sys.argv[2].encode() in memory.read(end - start)
            except (OSError, OverflowError):
                pass
        print("found" if found else "absent")
        """

    /// `found`, `absent` or `refused`.
    ///
    /// - Parameter rights: the words of a command that changes the rights of who looks.
    static func look(for text: String, in process: Int32, rights: [String]) async throws -> String {
        let words = rights + ["/usr/bin/python3", "-c", script, "\(process)", text]
        let search = try ChildProcess(words[0], Array(words.dropFirst()))
        #expect(await search.exitStatus() == 0, "\(search.errorText)")
        return search.lines.last ?? ""
    }

    /// Whether this machine lets a user's programs look into each other at all (Yama).
    static var isCommon: Bool {
        let scope = try? String(contentsOfFile: "/proc/sys/kernel/yama/ptrace_scope", encoding: .utf8)
        return scope.map { $0.hasPrefix("0") } ?? true
    }
}

@Suite("Programs that see passwords and tokens keep their memory to themselves")
struct PrivateMemoryTests {
    /// What shows variables, and where memory is: who may read these may read all of it.
    private static let files = ["environ", "maps"]

    @Test("no other program of the same user looks into the broker, what speaks to the provider, or Microsoft's bridge")
    func services() async throws {
        let user = try OrdinaryUser()
        let others = try user.start("sleep", ["1000"])
        try await eventually("another program is read") { try await user.reads("environ", of: others) }
        let broker = try await user.service("shared-device-broker", ["--state", user.directory.path + "/state"])
        let identity = try await user.service("shared-device-identity")
        let bridge = try await user.service(
            "shared-device-microsoft-broker",
            ["--state", user.directory.path + "/bridge"]
        )
        for file in Self.files {
            #expect(try await user.reads(file, of: others), "\(file)")
            #expect(try await !user.reads(file, of: broker), "\(file)")
            #expect(try await !user.reads(file, of: identity), "\(file)")
            #expect(try await !user.reads(file, of: bridge), "\(file)")
        }
    }

    @Test(
        "nor into the prompt, from before it asks for a password; and a broker of the same user knows it by its manifest"
    )
    func prompt() async throws {
        let user = try OrdinaryUser()
        let program = ChildProcess.built("shared-device-sign-in")
        try user.write(
            #"{"id": "\#(BrokerProtocol.promptIdentifier)", "executable": "\#(program)"}"#,
            to: "apps/sign-in.json"
        )
        let broker = try await user.service("shared-device-broker", ["--state", user.directory.path + "/state"])
        let prompt = try user.start(program, ["--bus", user.bus.address, "--page", "--browser", "none"])
        try await eventually("the page's address; it says \(prompt.errorText)") {
            try #require(prompt.isRunning, "\(prompt.errorText)")
            return prompt.errorText.contains("http://")
        }
        for file in Self.files { #expect(try await !user.reads(file, of: prompt), "\(file)") }
        prompt.send(SIGTERM)
        #expect(await prompt.exitStatus() == 1)
        withExtendedLifetime(broker) {}
    }

    /// The client's secret, which the process has in its memory from its start on.
    private static let secret = "s&cret +%/"

    @Test("after a sign-in only root sees the memory of what speaks to the provider, and its crash leaves no core")
    func crashOfIdentity() async throws {
        let cores = try CoreFolder()
        let wrapper = OrdinaryUser.rights + cores.wrapper
        let device = try await IdentityDevice(fault: "core", wrapper: wrapper)
        let test = try await FaultyProvider.shared.value.client("core")
        let signIn = try await device.signIn(test.browse)
        #expect(signIn.account.username == "ada@example.com")
        let program = try await cores.program(of: device.process)

        let limits = try String(contentsOfFile: "/proc/\(program)/limits", encoding: .utf8).split(separator: "\n")
        let ofCores = limits.first { $0.hasPrefix("Max core file size") }?.split(separator: " ").dropFirst(4).prefix(2)
        #expect(ofCores == ["0", "0"], "\(limits)")
        var file = stat()
        let isFile = lstat("/proc/\(program)/mem", &file) == 0
        #expect(isFile && file.st_uid == 0)
        let seen = try await MemorySearch.look(for: Self.secret, in: program, rights: OrdinaryUser.rights)
        #expect(seen == "refused")
        if geteuid() == 0 {
            // It is there to be found, and a core would have it. In some containers root may not look either.
            let byRoot = try await MemorySearch.look(for: Self.secret, in: program, rights: [])
            #expect(byRoot == "found" || byRoot == "refused")
        }
        #expect(try await !cores.leavesCore(device.process))
        #expect(try cores.files.isEmpty)
        let left = try FileManager.default.contentsOfDirectory(atPath: device.directory.path)
        #expect(left.sorted() == ["managed-configuration.json", "oidc-client-secret"])
    }

    @Test("no core of broker and Microsoft's bridge either; one of a program that does nothing against it is there")
    func crashes() async throws {
        let user = try OrdinaryUser()
        let (cores, others) = (try CoreFolder(), try CoreFolder())
        for (program, folder) in [("shared-device-broker", "state"), ("shared-device-microsoft-broker", "bridge")] {
            let state = ["--state", "\(user.directory.path)/\(folder)"]
            let process = try await user.service(program, state, wrapper: cores.wrapper)
            #expect(try await !cores.leavesCore(process), "\(program)")
        }
        #expect(try cores.files.isEmpty)
        let idle = ["/usr/bin/python3", "-c", "import time; print('up', flush=True); time.sleep(1000)"]
        let words = others.wrapper + idle
        let other = try user.start(words[0], Array(words.dropFirst()))
        try await other.line { $0 == "up" }
        if MemorySearch.isCommon {
            let number = try await others.program(of: other)
            let seen = try await MemorySearch.look(for: "time.sleep(1000)", in: number, rights: OrdinaryUser.rights)
            #expect(seen == "found")
        }
        if try await !others.leavesCore(other) { print("this machine keeps nobody's core: crashes have shown nothing") }
    }
}
