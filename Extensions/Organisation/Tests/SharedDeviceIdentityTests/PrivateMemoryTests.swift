import FoundationEssentials
import Glibc
import Identity
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import TestProviders
import Testing

/// Runs programs as an ordinary user does. Root may read all memory, so a root test drops its capabilities.
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

    /// The command that drops root's capabilities. setpriv executes the program in place, so the process ID stays the
    /// same.
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

    /// Whether a program of the same user can read this file of the process.
    func reads(_ file: String, of process: ChildProcess) async throws -> Bool {
        let reader = try start("cat", ["/proc/\(process.identifier)/\(file)"])
        let status = await reader.exitStatus()
        #expect(status == 0 || reader.errorText.contains("ermission denied"), "\(reader.errorText)")
        return status == 0
    }
}

/// A directory that collects core dumps without a size limit.
private struct CoreFolder {
    /// Starts a program, prints its process ID and how it ended. The program is killed with the script.
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

    var wrapper: [String] { ["/usr/bin/python3", "-c", Self.script, directory.path] }

    var files: [String] { get throws { try FileManager.default.contentsOfDirectory(atPath: directory.path) } }

    func program(of process: ChildProcess) async throws -> Int32 {
        let line = try await process.line { $0.hasPrefix("process ") }
        return try #require(Int32(line.dropFirst("process ".count)))
    }

    /// Aborts the program, as a crash would.
    ///
    /// - Returns: whether the kernel has written a core dump.
    func leavesCore(_ process: ChildProcess) async throws -> Bool {
        let number = try await program(of: process)
        #expect(kill(number, SIGABRT) == 0)
        let line = try await process.line { $0.hasPrefix("signal ") }
        #expect(line.hasPrefix("signal \(SIGABRT) core "))
        return line.hasSuffix(" 1")
    }
}

/// Searches the memory of another program as gcore(1) reads it.
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
    /// - Parameter rights: the words of a command that changes the rights of the searching program.
    static func look(for text: String, in process: Int32, rights: [String]) async throws -> String {
        let words = rights + ["/usr/bin/python3", "-c", script, "\(process)", text]
        let search = try ChildProcess(words[0], Array(words.dropFirst()))
        #expect(await search.exitStatus() == 0, "\(search.errorText)")
        return search.lines.last ?? ""
    }

    /// Whether this machine lets programs of one user trace each other (Yama).
    static var isCommon: Bool {
        let scope = try? String(contentsOfFile: "/proc/sys/kernel/yama/ptrace_scope", encoding: .utf8)
        return scope.map { $0.hasPrefix("0") } ?? true
    }
}

@Suite("Programs with passwords and tokens protect their memory")
struct PrivateMemoryTests {
    /// Files with variables and memory addresses. A program that may read these may read all memory.
    private static let files = ["environ", "maps"]

    @Test("no program of the same user can read the memory of the three services")
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

    @Test("no program of the same user can read the prompt, which the broker identifies")
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

    /// The client secret, which is in the process's memory from its start.
    private static let secret = "s&cret +%/"

    @Test("after a sign-in only root can read the identity service, and no core is written")
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
            // The secret is in the memory, and a core dump would contain it. In some containers even root may not read
            // it.
            let byRoot = try await MemorySearch.look(for: Self.secret, in: program, rights: [])
            #expect(byRoot == "found" || byRoot == "refused")
        }
        #expect(try await !cores.leavesCore(device.process))
        #expect(try cores.files.isEmpty)
        let left = try FileManager.default.contentsOfDirectory(atPath: device.directory.path)
        #expect(left.sorted() == ["managed-configuration.json", "oidc-client-secret"])
    }

    @Test("neither the broker nor Microsoft's bridge leaves a core, unlike other programs")
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
