import Foundation
import NotifyCenterTestKit
import SharedDevice
import SharedDeviceTestKit
import Testing

@Suite("shared-device follow: programs in any language")
struct FollowCommandTests {
    private static let app = "org.example.script"

    private let device: DeviceOnPrivateBus
    private let control: SharedDeviceApplication

    init() async throws {
        device = try await DeviceOnPrivateBus()
        control = device.application("control")
    }

    private var data: String { "\(device.directory.path)/data" }
    private var gate: String { "\(device.directory.path)/gate" }
    private var record: String { "\(device.directory.path)/record" }
    private var arguments: [String] { ["follow", "--app", Self.app, "--bus", device.bus.address, "--record", record] }

    private func follow(_ more: String...) throws -> ChildProcess {
        let variables = [
            "DATA": data, "GATE": gate, "LC_ALL": "", "LC_MESSAGES": "", "LANGUAGE": "", "LANG": "tr_TR.UTF-8",
        ]
        return try ChildProcess(ChildProcess.built("shared-device"), arguments + more, environment: variables)
    }

    private static let deleting = #"rm -rf "$DATA/$SHARED_DEVICE_FOLDER" && echo 1 folder"#

    /// Stores data for the account in the line, like a program that reads the line.
    @discardableResult
    private func store(for process: ChildProcess) async throws -> String {
        let line = try await process.line { $0.contains(#""state":"open""#) }
        let folder = try #require(line.firstMatch(of: #/"folder":"([^"]+)"/#)?.1)
        try FileManager.default.createDirectory(atPath: "\(data)/\(folder)", withIntermediateDirectories: true)
        try "the secret of ada".write(toFile: "\(data)/\(folder)/notes", atomically: true, encoding: .utf8)
        return "\(data)/\(folder)"
    }

    /// Signs ada in and out, and has the program store data in between.
    @discardableResult
    private func signOut(of process: ChildProcess) async throws -> String {
        try await control.signIn("ada")
        let folder = try await store(for: process)
        try await control.signOutCurrent()
        return folder
    }

    private func exists(_ path: String) -> Bool { FileManager.default.fileExists(atPath: path) }

    private func round() async throws -> CleanupReport.App? {
        try await control.cleanupReport()?.apps.first { $0.identifier.hasPrefix(Self.app) }
    }

    private func receipt() async throws {
        try await eventually("the receipt is there") { try await round()?.progress == .finished }
    }

    /// The states that a process has written, in order; a cleanup with its number.
    private func states(_ process: ChildProcess) -> [String] {
        process.lines.compactMap { $0.firstMatch(of: #/"state":"([a-z]+)"/#).map { String($0.1) } }
    }

    @Test("exit status 0 is the receipt, with the last line; processes left running end")
    func command() async throws {
        let leaving = #"(sleep 600; echo late > "$DATA/late") & echo $! > "$GATE""#
        let process = try follow("--cleanup", "yes | head -c 3000000; echo; \(leaving); \(Self.deleting)")
        try await process.line { $0.contains(#""state":"nobody""#) }
        let folder = try await signOut(of: process)
        try await receipt()
        #expect(!exists(folder))
        #expect(try await round()?.detail == "1 step: the cleanup command (1 folder)")
        try await eventually("no account is shown") { states(process).last == "nobody" }
        #expect(states(process) == ["hidden", "nobody", "open", "hidden", "nobody"])
        #expect(process.lines.allSatisfy { !$0.contains("\u{1B}") && $0.hasPrefix("{") })
        let text = try String(contentsOfFile: gate, encoding: .utf8)
        let child = try #require(Int32(text.split(separator: "\n")[0]))
        try await eventually("it has ended") { ["Z", nil].contains(ProcessState.letter(of: child)) }
    }

    @Test("a reader of the lines cleans up and replies by number; other input is ignored")
    func answers() async throws {
        let process = try follow("--step", "notes", "--step", "pictures")
        try await signOut(of: process)
        try await process.line { $0.contains(#""number":1,"state":"cleanup","step":"notes""#) }
        try await eventually("it is reported as begun") { (try? await round())?.progress == .begun }
        for line in ["{broken", #"{"done":"1"}"#, #"{"done":99}"#, String(repeating: "x", count: 3_000_000), ""] {
            try process.write(line)
        }
        try process.write(#"{"failed":1,"reason":"the disk is slow"}"#)
        try await process.line { $0.contains(#""number":2,"state":"cleanup","step":"notes""#) }
        try process.write(#"{"done":2,"detail":"3 files"}"#)
        try await process.line { $0.contains(#""number":3,"state":"cleanup","step":"pictures""#) }
        try process.write(#"{"done":3}"#)
        try await receipt()
        #expect(try await round()?.detail == "2 steps: notes (3 files), pictures")
        for flaw in [
            "line 1 of standard input: it is no JSON", "nothing waits for a response to number 99",
            "line 4 of standard input: it has more than 65536 bytes",
        ] { try await eventually("it says: \(flaw)") { process.errorText.contains(flaw) } }
    }

    @Test("a line of activity postpones the sign-out for inactivity")
    func activity() async throws {
        try device.configure(#"{"sharedDeviceMode": true, "passwordSignIn": true, "inactivityTimeout": 900}"#)
        try await control.signIn("ada")
        let file = "\(device.state)/last-activity"
        func written() throws -> Date? {
            try FileManager.default.attributesOfItem(atPath: file)[.modificationDate] as? Date
        }
        try await eventually("the sign-in is noted") { FileManager.default.fileExists(atPath: file) }
        let signedIn = try #require(try written())
        let process = try follow()
        // The broker stores the time at most once a second.
        try await eventually("time passes") { Date().timeIntervalSince(signedIn) > 1.5 }
        try process.write(#"{"activity":true}"#)
        try await eventually("the use is noted") { try #require(try written()) > signedIn }
        #expect(process.errorText.isEmpty)
    }

    @Test("a failing or hanging command leaves the cleanup pending and is retried")
    func failing() async throws {
        let cleanup = #"[ -e "$GATE" ] || exec sleep 600; \#(Self.deleting)"#
        let process = try follow("--timeout", "0.3", "--cleanup", cleanup)
        let folder = try await signOut(of: process)
        try await process.line { $0.contains(#""reason":"cleanup-failed""#) }
        // Between two attempts.
        try await eventually("the report has the reason") {
            let round = try await round()
            return round?.progress == .failed
                && round?.detail?.contains("did not end within 0.3 seconds and was stopped") == true
        }
        #expect(exists(folder))
        try "".write(toFile: gate, atomically: true, encoding: .utf8)
        try await receipt()
        #expect(!exists(folder))
        let other = try follow("--cleanup", "exit 3")
        try await control.signIn("grace")
        try await other.line { $0.contains(#""state":"open""#) }
        try await control.signOutCurrent()
        try await other.line { $0.contains("the cleanup command ended with status 3") }
    }

    @Test("before the end of a shift the command of --ending runs, until it is withdrawn")
    func ending() async throws {
        let time = Calendar.current.dateComponents([.hour, .minute], from: Date(timeIntervalSinceNow: 6 * 3600))
        let end = String(format: "%02d:%02d", try #require(time.hour), try #require(time.minute))
        let shift = #""shiftEnds": ["\#(end)"], "signOutWarning": 86400"#
        try device.configure(#"{"sharedDeviceMode": true, "passwordSignIn": true, \#(shift)}"#)
        let words =
            #"echo "$SHARED_DEVICE_END_REASON $SHARED_DEVICE_ENDS_IN $SHARED_DEVICE_END_NOTICE$SHARED_DEVICE_END_STAY $$""#
            + #" > "$GATE.new" && mv "$GATE.new" "$GATE""#
        let process = try follow("--cleanup", Self.deleting, "--ending", "\(words); exec sleep 600")
        try await control.signIn("ada")
        try await store(for: process)
        try await eventually("the command runs") { exists(gate) }
        let parts = try String(contentsOfFile: gate, encoding: .utf8).split(separator: " ")
        let child = try #require(parts.last.flatMap { Int32($0.dropLast()) })
        let seconds = try #require(Int(parts[1]))
        #expect(parts[0] == "shiftEnd" && (18_000...21_600).contains(seconds))
        #expect(parts[2...].starts(with: ["Vardiya", "bitiyor:", "oturumunuz", "saat", end[...]]))
        #expect(parts.dropLast().last == "kaydedin.", "the person cannot stay")
        try device.configure(#"{"sharedDeviceMode": true, "passwordSignIn": true}"#)
        try await eventually("it has ended") { ["Z", nil].contains(ProcessState.letter(of: child)) }
        #expect(states(process).last == "open", "the lines stay the same")
    }

    @Test("a command of --ending whose last line is “stay” keeps the person signed in")
    func staying() async throws {
        let process = try follow("--cleanup", Self.deleting, "--ending", #"echo asked; echo stay; echo > "$GATE""#)
        let keys = #""inactivityTimeout": 900, "signOutWarning": 600"#
        try device.configure(#"{"sharedDeviceMode": true, "passwordSignIn": true, \#(keys)}"#)
        try await device.signInAndRestart(idleFor: 500)
        try await eventually("the person was asked") { exists(gate) }
        try await eventually("the session goes on") {
            let end = await control.getDeviceInformation().sessionEnd
            return end.map { !$0.isSoon && $0.at.timeIntervalSinceNow > 600 } ?? false
        }
        #expect(process.errorText.isEmpty)
    }

    @Test(
        "after a kill during a cleanup, the next start cleans up before showing a user",
        arguments: ["cleanup", "asked"]
    )
    func killed(_ point: String) async throws {
        let command = ["--cleanup", #"echo > "$GATE.begun"; [ -e "$GATE" ] || sleep 1; \#(Self.deleting)"#]
        let first = point == "asked" ? try follow() : try follow(command[0], command[1])
        let folder = try await signOut(of: first)
        if point == "asked" { try await first.line { $0.contains(#""state":"cleanup""#) } }
        if point == "cleanup" { try await eventually("it runs") { exists(gate + ".begun") } }
        first.kill()
        first.waitUntilExit()
        try await control.signIn("grace")
        try "".write(toFile: gate, atomically: true, encoding: .utf8)
        let second = try follow(command[0], command[1])
        try await second.line { $0.contains(#""username":"grace""#) && $0.contains(#""state":"open""#) }
        #expect(!second.lines.contains { $0.contains(#""username":"ada""#) && $0.contains(#""state":"open""#) })
        #expect(!exists(folder))
        #expect(try await round()?.progress == .finished)
    }

    @Test("the end of input or SIGTERM ends it with 0, hidden, with its cleanup pending")
    func ends() async throws {
        try await control.signIn("ada")
        for way in ["input", "pipe", "signal"] {
            let process = way == "input" ? try follow() : try follow("--cleanup", Self.deleting)
            let folder = try await store(for: process)
            if way == "signal" { process.send(SIGTERM) } else { try process.closeInput() }
            #expect(await process.exitStatus() == 0, "\(way)")
            let last = process.lines.last
            #expect(last?.contains(#""reason":"stopped","state":"hidden""#) == true, "\(way): \(process.lines)")
            #expect(exists(folder), "\(way): the person is signed in still")
        }
        // During a cleanup, the end of standard input leaves the cleanup pending.
        let process = try follow()
        try await store(for: process)
        try await control.signOutCurrent()
        try await process.line { $0.contains(#""state":"cleanup""#) }
        try process.closeInput()
        #expect(await process.exitStatus() == 0)
        let round = try await round()
        #expect(round?.progress == .failed && round?.detail?.contains("standard input has ended") == true)
    }

    @Test("it ends when its output has no reader, even while nothing happens")
    func readerGone() async throws {
        let words = ([ChildProcess.built("shared-device")] + arguments + ["--cleanup", "true"]).joined(separator: " ")
        let shell = try ChildProcess("bash", ["-c", "set -o pipefail; \(words) | head -n 2"])
        #expect(await shell.exitStatus(within: .seconds(60)) == 74)
        #expect(shell.errorText.contains("the reader of standard output has closed it"), "\(shell.errorText)")
    }
}
