import AppAdapters
import Foundation
import Glibc
import NotifyCenterTestKit
import Testing

/// Uses real clipboards, keyrings and print queues that belong to each test. A test is disabled, with the reason, if
/// the machine lacks the programs.
@Suite("Traces of a session in services")
struct SessionServicesTests {
    private static let command = ChildProcess.built("shared-device")

    private static func has(_ programs: String...) -> Bool {
        programs.allSatisfy { program in
            ["/usr/bin", "/bin", "/usr/sbin"].contains { access("\($0)/\(program)", X_OK) == 0 }
        }
    }

    private let directory: TemporaryDirectory
    private var home: String { directory.path }

    init() throws { directory = try TemporaryDirectory("session") }

    private func traces(
        _ step: String,
        mode: String = "--now",
        _ environment: [String: String]
    ) async throws -> (status: Int32, text: String) {
        let steps = [
            "clipboard", "recent-files", "downloads", "trash", "thumbnails", "history", "keyring", "print-queue",
        ]
        let others = steps.filter { $0 != step }
        let process = try ChildProcess(
            Self.command,
            ["session-traces", mode, "--without", others.joined(separator: ",")],
            environment: [
                "HOME": home, "XDG_DATA_HOME": "", "DISPLAY": "", "WAYLAND_DISPLAY": "",
                // No session bus.
                "DBUS_SESSION_BUS_ADDRESS": "", "XDG_RUNTIME_DIR": home,
            ].merging(environment) { $1 }
        )
        let status = await process.exitStatus()
        return (status, (process.lines + [process.errorText]).joined(separator: "\n"))
    }

    /// Runs a shell command that must succeed.
    @discardableResult
    private func shell(_ line: String, _ environment: [String: String] = [:]) async throws -> String {
        let process = try ChildProcess("sh", ["-c", line], environment: environment)
        let status = await process.exitStatus()
        try #require(status == 0, "\(line): \(process.errorText)")
        return process.lines.joined(separator: "\n")
    }

    /// A directory with these programs and a shell, for a path that lacks all others.
    private func tools(_ programs: String...) async throws -> String {
        let tools = "\(home)/bin"
        let paths = programs.map { " $(command -v \($0))" }.joined()
        try await shell("mkdir -p '\(tools)' && ln -s /usr/bin/env /bin/sh\(paths) '\(tools)'")
        return tools
    }

    // MARK: The clipboard

    @Test("a session without a display has no clipboard; a missing tool is an error")
    func noClipboard() async throws {
        let none = try await traces("clipboard", [:])
        #expect(none.status == 0 && none.text.contains("clipboard  not there: the session has no display"), "\(none)")
        let tools = try await tools()
        for (variable, package) in [("DISPLAY", "xclip"), ("WAYLAND_DISPLAY", "wl-clipboard")] {
            let outcome = try await traces("clipboard", [variable: ":7", "PATH": tools])
            #expect(outcome.status == EX_IOERR && outcome.text.contains("Install \(package)"), "\(outcome)")
        }
    }

    @Test(
        "both selections of an X server are emptied",
        .enabled(if: has("Xvfb", "xclip"), "Xvfb or xclip is not installed"),
        arguments: ["xclip", "xsel"].filter { has($0) }
    )
    func x11(tool: String) async throws {
        let server = try ChildProcess("Xvfb", ["-displayfd", "1", "-nolisten", "tcp", "-noreset"])
        let display = ":" + (try await server.line { Int($0) != nil })
        let environment = try await ["DISPLAY": display, "PATH": tools(tool)]
        // A text that reads like a tool's error message is still a text.
        for (selection, text) in [("clipboard", "ada-4711"), ("primary", "Error: cannot open display: :0")] {
            let copy = "printf '\(text)' | xclip -selection \(selection) >/dev/null 2>&1"
            try await shell(copy, ["DISPLAY": display])
        }
        let look = try await traces("clipboard", mode: "--dry-run", environment)
        #expect(look.text.contains("clipboard  clipboard and primary would go"), "\(look)")
        let outcome = try await traces("clipboard", environment)
        #expect(outcome.status == 0 && outcome.text.contains("clipboard and primary removed"), "\(outcome)")
        for selection in ["clipboard", "primary"] {
            let left = try await shell("xclip -o -selection \(selection) 2>/dev/null || true", ["DISPLAY": display])
            #expect(left.isEmpty)
        }
        server.kill()
        server.waitUntilExit()
        let gone = try await traces("clipboard", environment)
        #expect(gone.status == EX_IOERR && gone.text.contains("FAILED"), "a missing display is no proof: \(gone)")
    }

    @Test(
        "both selections of a Wayland compositor are emptied",
        .enabled(
            if: has("sway", "wl-copy", "setpriv") && geteuid() == 0,
            "sway or wl-clipboard is not installed, or this is not root, and sway must run as another user"
        )
    )
    func wayland() async throws {
        let runtime = "\(home)/runtime"
        try await shell(
            "mkdir '\(runtime)' && : > '\(runtime)/sway' && chown -R 65534 '\(runtime)' && chmod 711 '\(home)'"
        )
        let compositor = try ChildProcess(
            "setpriv",
            ["--reuid=65534", "--regid=65534", "--clear-groups", "sway", "--config", "\(runtime)/sway"],
            environment: [
                "HOME": runtime, "XDG_RUNTIME_DIR": runtime, "WLR_BACKENDS": "headless", "WLR_LIBINPUT_NO_DEVICES": "1",
                "WLR_RENDERER": "pixman", "DISPLAY": "", "WAYLAND_DISPLAY": "",
            ]
        )
        let display = "\(runtime)/wayland-1"
        try await eventually("sway serves", within: .seconds(60)) {
            try #require(compositor.isRunning, "\(compositor.errorText)")
            return access(display, F_OK) == 0
        }
        let environment = ["WAYLAND_DISPLAY": display, "XDG_RUNTIME_DIR": runtime]
        for primary in ["", "--primary"] {
            let copied = "until wl-paste \(primary) --list-types >/dev/null 2>&1; do sleep 0.05; done"
            try await shell("printf ada-4711 | wl-copy \(primary) >/dev/null 2>&1; \(copied)", environment)
        }
        let outcome = try await traces("clipboard", environment)
        #expect(outcome.status == 0 && outcome.text.contains("clipboard and primary removed"), "\(outcome)")
        for primary in ["", "--primary"] {
            #expect(try await shell("wl-paste \(primary) --list-types 2>/dev/null || true", environment).isEmpty)
        }
    }

    // MARK: The keyring

    private static let hasKeyring = has("gnome-keyring-daemon", "secret-tool", "gdbus")

    /// gnome-keyring on a bus of its own, with its data in the home directory.
    private struct KeyringService {
        let bus: PrivateBus
        let environment: [String: String]
        let daemon: ChildProcess

        init(home: String, _ options: String...) throws {
            bus = try PrivateBus()
            environment = [
                "DBUS_SESSION_BUS_ADDRESS": bus.address, "HOME": home, "XDG_DATA_HOME": "\(home)/data",
                "XDG_RUNTIME_DIR": home, "NOTIFY_CENTER_BUS": "session",
            ]
            let words = ["--foreground", "--components=secrets"] + options
            daemon = try ChildProcess("gnome-keyring-daemon", words, environment: environment)
        }
    }

    /// Empties the keyring, which has one item, and expects that nothing is left of it.
    private func emptyKeyring(_ environment: [String: String]) async throws {
        let outcome = try await traces("keyring", environment)
        #expect(outcome.status == 0 && outcome.text.contains("keyring  1 item"), "\(outcome)")
        let left = try await shell("secret-tool search --all service mail 2>&1 || true", environment)
        #expect(!left.contains("ada-4711"), "\(left)")
    }

    @Test(
        "open keyrings are emptied item by item, and locked ones are deleted",
        .enabled(if: hasKeyring, "gnome-keyring or secret-tool is not installed"),
        arguments: [false, true]
    )
    func keyring(isLocked: Bool) async throws {
        let keyring = try KeyringService(home: home, "--unlock")
        let environment = keyring.environment
        try keyring.daemon.write("password")
        try keyring.daemon.closeInput()
        let service = "org.freedesktop.secrets --object-path /org/freedesktop/secrets"
        let path = "/org/freedesktop/secrets/collection/login"
        try await shell("gdbus wait --session --timeout 60 org.freedesktop.secrets", environment)
        let store = "printf ada-4711 | secret-tool store --label mail service mail"
        try await shell("for i in 1 2 3 4 5 6 7 8 9; do \(store) && exit; sleep 1; done; exit 1", environment)
        if isLocked {
            let lock = "org.freedesktop.Secret.Service.Lock \"[objectpath '\(path)']\""
            try await shell("gdbus call --session --dest \(service) --method \(lock)", environment)
        }
        let look = try await traces("keyring", mode: "--dry-run", environment)
        #expect(look.text.contains("1 item"), "\(look)")
        try await emptyKeyring(environment)
        let files = try FileManager.default.contentsOfDirectory(atPath: "\(home)/data/keyrings")
        #expect(files == (isLocked ? [] : ["login.keyring"]))
        // The session can still store secrets.
        if !isLocked { try await shell(store, environment) }
        withExtendedLifetime(keyring) {}
    }

    @Test(
        "a locked keyring without a password is opened, emptied and kept",
        .enabled(if: hasKeyring, "gnome-keyring or secret-tool is not installed")
    )
    func keyringWithoutPassword() async throws {
        // The file that gnome-keyring writes for a keyring with an empty password.
        let folder = "\(home)/data/keyrings"
        try writeFile("login", to: "\(folder)/default")
        let content = """
            [keyring]
            display-name=Login
            ctime=0
            mtime=0
            lock-on-idle=false
            lock-after=false

            [1]
            item-type=0
            display-name=mail
            secret=ada-4711
            mtime=0
            ctime=0

            [1:attribute0]
            name=service
            type=string
            value=mail

            """
        try writeFile(content, to: "\(folder)/login.keyring")
        let keyring = try KeyringService(home: home)
        try await shell("gdbus wait --session --timeout 60 org.freedesktop.secrets", keyring.environment)
        try await emptyKeyring(keyring.environment)
        #expect(try !String(contentsOfFile: "\(folder)/login.keyring", encoding: .utf8).contains("ada-4711"))
        withExtendedLifetime(keyring) {}
    }

    // MARK: The print queue

    @Test(
        "pending print jobs are cancelled; kept finished ones are an error",
        .enabled(
            if: has("cupsd", "lpadmin", "lpstat", "cancel") && geteuid() == 0,
            "cups is not installed, or this is not root, and cupsd runs only as root"
        ),
        arguments: [false, true]
    )
    func printQueue(keepsHistory: Bool) async throws {
        let word = keepsHistory ? "Yes" : "No"
        let configuration = """
            Listen \(home)/cups.sock
            WebInterface No
            PreserveJobHistory \(word)
            PreserveJobFiles \(word)
            <Location />
              Allow all
            </Location>
            <Policy default>
              <Limit All>
                Order deny,allow
              </Limit>
            </Policy>
            """
        let files = [
            "ServerRoot": "root", "StateDir": "state", "CacheDir": "cache", "RequestRoot": "spool",
            "TempDir": "spool/tmp", "AccessLog": "access", "ErrorLog": "error", "PageLog": "page",
        ]
        try await shell("mkdir -p '\(home)'/root '\(home)'/state/certs '\(home)'/cache '\(home)'/spool/tmp")
        try writeFile(configuration, to: "\(home)/cupsd.conf")
        try writeFile(files.map { "\($0) \(home)/\($1)" }.joined(separator: "\n"), to: "\(home)/files.conf")
        let server = try ChildProcess("cupsd", ["-f", "-c", "\(home)/cupsd.conf", "-s", "\(home)/files.conf"])
        let environment = ["CUPS_SERVER": "\(home)/cups.sock"]
        try await eventually("cupsd serves", within: .seconds(60)) {
            try await shell("lpstat -r || true", environment.merging(["LC_ALL": "C"]) { $1 }) == "scheduler is running"
        }
        try await shell("lpadmin -p test -v socket://127.0.0.1:9 -E && cupsdisable test", environment)
        try await shell("for i in 1 2; do echo ada-4711 | lp -d test -t letter; done", environment)
        let outcome = try await traces("print-queue", environment)
        if keepsHistory {
            #expect(outcome.status == EX_IOERR && outcome.text.contains("keeps 2 jobs that are finished"), "\(outcome)")
            #expect(outcome.text.contains("PreserveJobHistory No"), "\(outcome)")
        } else {
            #expect(outcome.status == 0 && outcome.text.contains("2 jobs waiting removed"), "\(outcome)")
            #expect(try await shell("grep -rl ada-4711 '\(home)/spool' || true").isEmpty)
        }
        server.send(SIGTERM)
        server.waitUntilExit()
        let gone = try await traces("print-queue", environment)
        #expect(gone.status == 0 && gone.text.contains("not there: the print service does not run"), "\(gone)")
    }
}
