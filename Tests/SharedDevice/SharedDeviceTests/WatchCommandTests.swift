import Foundation
import Glibc
import NotifyCenterTestKit
import SharedDevice
import Testing

@Suite("shared-device watch with a real broker")
struct WatchCommandTests {
    /// A pseudo-terminal. Its standard input controls it: `key s`, `size 40 20`, `signal 15`. Its output is the screen,
    /// one line for each cursor position, and finally the program's exit status and whether the terminal's settings are
    /// restored.
    private static let terminal = """
        import fcntl, os, pty, select, signal, struct, subprocess, sys, termios
        controller, terminal = pty.openpty()
        size = lambda columns, rows: fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        size(100, 30)
        before = termios.tcgetattr(terminal)
        begin = lambda: (os.setsid(), fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        child = subprocess.Popen(sys.argv[1:], stdin=terminal, stdout=terminal, preexec_fn=begin)
        def show():
            data = os.read(controller, 65536)
            sys.stdout.buffer.write(data.replace(b"\\x1b[", b"\\n\\x1b["))
            sys.stdout.flush()
        while child.poll() is None:
            for ready in select.select([0, controller], [], [], 0.05)[0]:
                if ready == controller:
                    show()
                    continue
                for line in os.read(0, 4096).decode().splitlines():
                    what, *words = line.split()
                    if what == "key": os.write(controller, words[0].encode())
                    elif what == "size": size(int(words[0]), int(words[1]))
                    elif what == "signal": child.send_signal(int(words[0]))
        while select.select([controller], [], [], 0)[0]: show()
        print(f"\\nended {child.returncode}, as before: {termios.tcgetattr(terminal) == before}", flush=True)
        """

    private func onTerminal(_ device: DeviceOnPrivateBus, _ environment: [String: String] = [:]) throws -> ChildProcess
    {
        let variables = ["TERM": "xterm", "NO_COLOR": "", "NOTIFY_CENTER_BUS": device.bus.address]
        return try ChildProcess(
            "python3",
            ["-c", Self.terminal, ChildProcess.built("shared-device"), "watch"],
            environment: variables.merging(environment) { $1 }
        )
    }

    private func shows(_ text: String, _ screen: ChildProcess, after count: Int = 0) async throws {
        try await eventually("the screen shows \(text)", within: .seconds(60)) {
            try #require(screen.isRunning || screen.lines.contains { $0.hasPrefix("ended") }, "\(screen.errorText)")
            return screen.lines.dropFirst(count).contains { $0.contains(text) }
        }
    }

    /// Waits for the program's end, and checks that the terminal's settings are restored.
    private func ends(_ screen: ChildProcess, by status: Int32) async throws {
        let last = try await screen.line { $0.hasPrefix("ended ") }
        #expect(last == "ended \(status), as before: True")
        let screens = screen.lines.filter { $0.contains("[?1049") }.map { $0.suffix(5) }
        #expect(screens == ["1049h", "1049l"], "the alternate screen is entered once and left once")
        #expect(screen.lines.last { $0.contains("[?25") }?.contains("[?25h") == true, "the cursor is visible")
    }

    @Test("the screen shows the device's state, and its s key signs out if confirmed")
    func live() async throws {
        let device = try await DeviceOnPrivateBus()
        let screen = try onTerminal(device)
        try await shows("○ No account is signed in", screen)
        try await device.application("desk").signIn("ada")
        try await shows("● Ada", screen)
        try await shows("▪ holds data", screen)
        try await shows("s sign out", screen)
        try screen.write("key s")
        try await shows("Sign Ada out? 1 app holds data", screen)
        let asked = screen.lines.count
        try screen.write("key n")
        try await shows("s sign out", screen, after: asked)
        // Count from here: the first question may have been drawn twice, and keys that arrive together confirm nothing.
        let denied = screen.lines.count
        try screen.write("key s")
        try await shows("Sign Ada out?", screen, after: denied)
        try screen.write("key y")
        try await shows("○ No account is signed in", screen, after: denied)
        try await device.expectAudit("signed-out", ["shared-device watch"])
        try await shows("1 of 1 owes a cleanup", screen)
        try await shows("signed-out", screen)
        device.killBroker()
        try await shows("Unknown: the broker does not respond", screen)
        let before = screen.lines.count
        try await device.startBroker()
        try await shows("○ No account is signed in", screen, after: before)
        try screen.write("key q")
        try await ends(screen, by: 0)
    }

    @Test("a signal ends the program and restores the terminal")
    func signals() async throws {
        let device = try await DeviceOnPrivateBus()
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
            let screen = try onTerminal(device)
            try await shows("○ No account is signed in", screen)
            try screen.write("signal \(signal)")
            try await ends(screen, by: -signal)
        }
    }

    @Test("resizing redraws the screen; NO_COLOR and plain terminals have no colours")
    func size() async throws {
        let device = try await DeviceOnPrivateBus()
        let screen = try onTerminal(device, ["NO_COLOR": "1"])
        try await shows("Advisory: the next person waits for no app.", screen)
        let before = screen.lines.count
        try screen.write("size 20 12")
        try await shows("Advisory: the next", screen, after: before)
        try await shows("person waits for no", screen, after: before)
        #expect(!screen.lines.contains { $0.contains("[1m") || $0.contains("[2m") })
        // A line is cleared before it is written; clearing it later would delete its last character.
        let lines = screen.lines
        let written = zip(lines, lines.dropFirst()).filter { $0.0.hasSuffix(";1H") }
        #expect(!written.isEmpty && written.allSatisfy { $0.1.hasPrefix("\u{1B}[K") })
        try screen.write("key q")
        try await ends(screen, by: 0)
    }

    private struct Line: Decodable {
        struct Device: Decodable {
            let account: String?
            let displayName: String?
            let revision: UInt64
        }
        struct Round: Decodable {
            let session: UInt64
            let outcome: String
        }
        let broker: String
        let device: Device?
        let round: Round?
    }

    @Test("--json writes one line per change, and waits for the signal of a broker's return")
    func json() async throws {
        let device = try await DeviceOnPrivateBus()
        let rule = "type='method_call',interface='org.notifycenter.SharedDevice1'"
        let monitor = try ChildProcess("dbus-monitor", ["--address", device.bus.address, rule])
        let watch = try ChildProcess(
            ChildProcess.built("shared-device"),
            ["watch", "--json", "--bus", device.bus.address]
        )
        func lines() throws -> [Line] {
            try watch.lines.map { try JSONDecoder().decode(Line.self, from: Data($0.utf8)) }
        }
        let questions = { monitor.lines.count { $0.contains("member=GetStatus") } }
        // The monitor is a separate process. When it has printed this call, it has printed everything that the bus
        // handled before.
        func monitorCatchesUp() async throws {
            let marks = { monitor.lines.count { $0.contains("member=Mark") } }
            let before = marks()
            let call = [
                "--type=method_call", "--dest=org.freedesktop.DBus", "/", "org.notifycenter.SharedDevice1.Mark",
            ]
            let send = try ChildProcess("dbus-send", ["--bus=\(device.bus.address)"] + call)
            #expect(await send.exitStatus() == 0)
            try await eventually("the monitor has seen the mark") { marks() > before }
        }
        try await watch.line { $0.contains("\"responds\"") }
        try await eventually("the monitor sees requests") { questions() > 0 }
        let app = device.application("desk")
        try await app.signIn("ada")
        try await eventually("ada is in a line") { try lines().last?.device?.account == "ada" }
        #expect(try lines().last?.device?.displayName == "Ada")
        try await app.signOutCurrent()
        try await eventually("her round is in a line") { try lines().contains { $0.round?.outcome == "open" } }
        device.killBroker()
        try await eventually("the broker's end is in a line") { try lines().last?.broker == "gone" }
        try await monitorCatchesUp()
        // A second request may follow the broker's end, because the bus may be able to start another broker.
        let asked = questions()
        // Only a delay can show that nothing happens: a request per second would be two.
        try await Task.sleep(for: .seconds(2))
        try await monitorCatchesUp()
        #expect(questions() <= asked + 1)
        try await device.startBroker()
        try await eventually("the broker's return is in a line", within: .seconds(60)) {
            try lines().last?.broker == "responds"
        }
        // The outage gets one line, although the command may send a second request during it.
        #expect(try lines().filter { $0.broker == "gone" }.count == 1)
        let revisions = try lines().prefix { $0.broker == "responds" }.compactMap(\.device?.revision)
        #expect(revisions == revisions.sorted())
        watch.send(SIGTERM)
        #expect(await watch.exitStatus() >= 128)
    }
}

@Suite("shared-device metrics with a real broker")
struct MetricsCommandTests {
    @Test("the file is replaced atomically for all readers, or the error names it")
    func file() async throws {
        let device = try await DeviceOnPrivateBus()
        let file = "\(device.directory.path)/device.prom"
        let arguments = ["metrics", "--output", file, "--bus", device.bus.address]
        func lines() async throws -> [String] {
            #expect(try await CommandOutcome(arguments).status == 0)
            return try String(contentsOfFile: file, encoding: .utf8).components(separatedBy: "\n")
        }
        let app = device.application("desk")
        try await app.signIn("ada")
        let holding = try await lines()
        #expect(holding.contains("shared_device_signed_in 1") && holding.suffix(2) == ["# EOF", ""])
        #expect(holding.contains(#"shared_device_apps{state="holding"} 1"#))
        try await app.signOutCurrent()
        #expect(try await lines().contains(#"shared_device_apps{state="owing"} 1"#))
        device.killBroker()
        #expect(try await lines().filter { !$0.hasPrefix("#") && !$0.isEmpty } == ["shared_device_up 0"])
        let attributes = try FileManager.default.attributesOfItem(atPath: file)
        #expect(attributes[.posixPermissions] as? Int == 0o644)
        let left = try FileManager.default.contentsOfDirectory(atPath: device.directory.path)
        #expect(left.filter { $0.hasPrefix("device.prom") } == ["device.prom"])
        // A file that cannot be written is named.
        let outcome = try await CommandOutcome(["metrics", "--output", "/proc/version", "--bus", device.bus.address])
        #expect(outcome.status == EX_CANTCREAT && outcome.errors.contains("/proc/version"))
    }
}
