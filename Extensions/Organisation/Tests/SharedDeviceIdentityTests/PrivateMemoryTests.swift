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

    func start(_ words: String...) throws -> ChildProcess {
        // env(1) executes the program in place, too.
        try ChildProcess("env", Self.rights + words, environment: environment)
    }

    func service(_ program: String, _ more: [String] = []) async throws -> ChildProcess {
        let arguments = ["--bus", bus.address, "--configuration", directory.path + "/managed-configuration.json"]
        let words = Self.rights + [ChildProcess.built(program)] + arguments + more
        return try await ChildProcess.service("env", words, environment: environment)
    }

    /// Whether a program of the same user can read this file of the process.
    func reads(_ file: String, of process: ChildProcess) async throws -> Bool {
        let reader = try start("cat", "/proc/\(process.identifier)/\(file)")
        let status = await reader.exitStatus()
        #expect(status == 0 || reader.errorText.contains("ermission denied"), "\(reader.errorText)")
        return status == 0
    }
}

/// Starts a program in a directory without a limit of core dumps, and prints its process ID and how it ended. The
/// program is killed with the script.
private let startWithCores = """
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
        let search = try ChildProcess("env", rights + ["/usr/bin/python3", "-c", script, "\(process)", text])
        #expect(await search.exitStatus() == 0, "\(search.errorText)")
        return search.lines.last ?? ""
    }
}

@Suite("Programs with passwords and tokens protect their memory")
struct PrivateMemoryTests {
    /// Files with variables and memory addresses. A program that may read these may read all memory.
    private static let files = ["environ", "maps"]

    @Test("no program of the same user can read services and prompt, and no core is written")
    func programs() async throws {
        let user = try OrdinaryUser()
        let program = ChildProcess.built("shared-device-sign-in")
        try user.write(
            #"{"id": "\#(BrokerProtocol.promptIdentifier)", "executable": "\#(program)"}"#,
            to: "apps/sign-in.json"
        )
        let others = try user.start("sleep", "1000")
        try await eventually("another program is read") { try await user.reads("environ", of: others) }
        let broker = try await user.service("shared-device-broker", ["--state", user.directory.path + "/state"])
        let identity = try await user.service("shared-device-identity")
        let state = ["--state", user.directory.path + "/bridge"]
        let bridge = try await user.service("shared-device-microsoft-broker", state)
        // The broker can identify the prompt.
        let prompt = try user.start(program, "--bus", user.bus.address, "--page", "--browser", "none")
        _ = try await prompt.pageAddress()
        for file in Self.files {
            #expect(try await user.reads(file, of: others), "\(file)")
            for process in [broker, identity, bridge, prompt] {
                #expect(try await !user.reads(file, of: process), "\(file)")
            }
        }
        // The kernel writes no core of a process whose memory it protects in this way. The limits are a second
        // protection.
        let none = CoreLimits(soft: "0", hard: "0")
        let limits = [broker, identity, bridge].map { CoreLimits(of: $0.identifier) }
        #expect(limits == [none, none, CoreLimits.ofPrompts])
        prompt.send(SIGTERM)
        #expect(await prompt.exitStatus() == 1)
    }

    @Test("after a sign-in only root can read the identity service, and no core is written")
    func crashOfIdentity() async throws {
        let cores = try TemporaryDirectory("cores")
        let wrapper = OrdinaryUser.rights + ["/usr/bin/python3", "-c", startWithCores, cores.path]
        let device = try await IdentityDevice(fault: "core", wrapper: wrapper)
        _ = try await device.signIn()
        let line = try await device.process.line { $0.hasPrefix("process ") }
        let program = try #require(Int32(line.dropFirst("process ".count)))
        #expect(CoreLimits(of: program) == CoreLimits(soft: "0", hard: "0"))
        var file = stat()
        let isFile = lstat("/proc/\(program)/mem", &file) == 0
        #expect(isFile && file.st_uid == 0)
        // The client secret is in the process's memory from its start.
        let seen = try await MemorySearch.look(for: FaultyProvider.secret, in: program, rights: OrdinaryUser.rights)
        #expect(seen == "refused")
        if geteuid() == 0 {
            // The secret is in the memory, and a core dump would contain it. In some containers even root may not read
            // it.
            let byRoot = try await MemorySearch.look(for: FaultyProvider.secret, in: program, rights: [])
            #expect(byRoot == "found" || byRoot == "refused")
        }
        // Aborts the program, as a crash would.
        #expect(kill(program, SIGABRT) == 0)
        let end = try await device.process.line { $0.hasPrefix("signal ") }
        #expect(end == "signal \(SIGABRT) core 0")
        #expect(try FileManager.default.contentsOfDirectory(atPath: cores.path).isEmpty)
        let left = try FileManager.default.contentsOfDirectory(atPath: device.directory.path)
        #expect(left.sorted() == ["managed-configuration.json", "oidc-client-secret"])
    }
}
