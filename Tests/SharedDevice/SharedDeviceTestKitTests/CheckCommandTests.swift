import Foundation
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDeviceTestKit
import Testing

@Suite("shared-device check")
struct CheckCommandTests {
    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory("check") }

    private func check(_ arguments: [String], environment: [String: String] = [:]) async throws -> CommandOutcome {
        try await CommandOutcome(["check"] + arguments, environment: environment)
    }

    private var junit: String { "\(directory.path)/r.xml" }
    private var html: String { "\(directory.path)/r.html" }

    private func file(_ content: Data) throws -> String {
        let path = "\(directory.path)/plan.json"
        try content.write(to: URL(fileURLWithPath: path))
        return path
    }

    /// Checks a plan with these steps and this app.
    private func check(_ steps: String, apps: String) async throws -> CommandOutcome {
        try await check([try file(CheckPlanTests.plan(steps, apps: apps))])
    }

    @Test("the example plan holds in all reports")
    func examplePlan() async throws {
        let json = "\(directory.path)/r.json"
        let plan = CheckPlanTests.root.appending(path: "Examples/check-plan.json").path
        let outcome = try await check([plan, "--junit", junit, "--html", html, "--json", json])
        try #require(outcome.status == 0, "\(outcome.errors)\n\(outcome.output)")
        #expect(outcome.output.hasSuffix("expectations hold"), "\(outcome.output)")
        #expect(!outcome.output.contains("\u{1B}"), "colour that no terminal reads")
        #expect(outcome.errors.contains("shared-device: step 1 of 33: ada signs in"))
        #expect(outcome.output.split(separator: "\n").count <= 12, "it is short: \(outcome.output)")
        #expect(!outcome.output.contains("org.notifycenter") && outcome.output.contains("\npoint-of-sale "))
        #expect(outcome.output.split(separator: "\n").dropLast().last == "timeline: \(html)")
        let content = try Data(contentsOf: URL(fileURLWithPath: json))
        let result = try #require(try JSONSerialization.jsonObject(with: content) as? [String: Any])
        let verdicts = try #require(result["verdicts"] as? [[String: Any]])
        let cases = try XMLReader(file: junit)
        #expect(result["holds"] as? Bool == true)
        #expect(cases.count("testcase") == verdicts.count && cases.count("failure") == 0)
        let page = try XMLReader(file: html)
        // Both the data and the drawing code are in the page.
        #expect(page.count("script") == 2 && page.count("img") == 0)
        // The drawing contains the killed app, the stopped app, and the ledger's events for them.
        #expect(page.text.contains("is killed (SIGKILL)") && page.text.contains("is stopped (SIGSTOP)"))
    }

    @Test("a plan shows that a device refuses a user, and that an app is not for another")
    func allowedUsers() async throws {
        let text = """
            {"users": ["ada", "grace", "eve"], "groups": {"nurses": ["ada", "grace"], "doctors": ["grace"]},
            "allowedUsers": {"groups": ["nurses"]}, "apps": [
            {"identifier": "org.example.ward", "executable": "shared-device", "allowedUsers": {"groups": ["doctors"]},
            "arguments": ["follow", "--app", "org.example.ward", "--bus", "{bus}", "--cleanup", "true"]},
            {"identifier": "org.example.notes", "executable": "sh",
            "arguments": ["-c", "echo note > $XDG_DATA_HOME/notes; exec sleep 600"]}],
            "steps": [{"do": "waitForLine", "app": "org.example.ward", "containing": "nobody"},
            {"do": "refuseSignIn", "user": "eve"}, {"do": "signIn", "user": "ada"}, {"do": "signOut"},
            {"do": "signIn", "user": "grace"},
            {"do": "waitForLine", "app": "org.example.ward", "containing": "grace"},
            {"do": "expect", "present": ["note"], "apps": ["org.example.notes"]}]}
            """
        let result = try await CheckRunner(CheckPlan(json: Data(text.utf8))).run()
        #expect(result.holds, "\(result.failure?.message ?? "")\n\(result.output)")
    }

    @Test("an app with unmet needs is left out with its steps, as every report says")
    func leftOut() async throws {
        let text = """
            {"users": ["ada"], "apps": [
            {"identifier": "here", "executable": "sh", "arguments": ["-c", "echo up; exec sleep 600"], "needs": ["true"]},
            {"identifier": "away", "executable": "no-such-program", "needs": ["sh", "-c", "echo no parts >&2; exit 3"]}],
            "steps": [{"do": "waitForLine", "app": "here", "containing": "up"},
            {"do": "waitForLine", "app": "away", "containing": "up"}, {"do": "expect", "present": ["up"], "apps": ["away"]},
            {"do": "expect", "present": ["up"], "apps": ["here", "away"]}]}
            """
        let plan = try file(Data(text.utf8))
        let outcome = try await check([plan, "--verbose", "--junit", junit, "--html", html])
        // The available app is checked: it has no data.
        #expect(outcome.status == 1 && outcome.output.contains("1 of 1 expectation fails"), "\(outcome)")
        let reason = "“sh -c echo no parts >&2; exit 3” ended with status 3: no parts"
        #expect(outcome.output.contains("left out: away, because \(reason)"), "\(outcome.output)")
        #expect(outcome.output.contains("\n2     left out"), "\(outcome.output)")
        let cases = try XMLReader(file: junit)
        #expect(cases.count("testcase") == 2 && cases.count("skipped") == 1 && cases.text.contains("no parts"))
        #expect(try XMLReader(file: html).text.contains("Left out: away"))
        // A plan whose apps are all left out proves nothing.
        let all = #"[{"identifier": "a", "executable": "sh", "needs": ["false"]}]"#
        let nothing = try await check(CheckPlanTests.expect, apps: all)
        let verdict = "nothing was looked at: every app is left out"
        #expect(nothing.status == 1 && nothing.output.hasSuffix(verdict), "\(nothing)")
    }

    /// An app that ignores sign-outs: it keeps its data.
    private static let untidy = """
        {"title": "<script>alert(1)</script> & \\u0007", "users": ["ada"], "apps": [{"identifier": "<script>'\\"&", "executable": "sh",
        "arguments": ["-c", "echo \\"$1\\" > \\"$XDG_DATA_HOME/notes\\"; echo up; exec sleep 600", "sh", "<script>]]>"]}],
        "steps": [{"do": "signIn", "user": "ada"},
        {"do": "waitForLine", "app": "<script>'\\"&", "containing": "up"},
        {"do": "expect", "present": ["<script>]]>"]}, {"do": "signOut"},
        {"do": "expect", "heardWithin": 50, "cleanedWithin": 50, "absent": ["<script>]]>"]}]}
        """

    @Test("an app that keeps its data fails the check; markup in names is escaped")
    func untidyApp() async throws {
        let plan = try file(Data(Self.untidy.utf8))
        let outcome = try await check([plan, "--junit", junit, "--html", html, "--json", "-"])
        try #require(outcome.status == 1, "\(outcome.errors)\n\(outcome.output)")
        let result = try JSONDecoder.withDates.decode(CheckResult.self, from: Data(outcome.output.utf8))
        #expect(!result.holds && result.failure == nil)
        #expect(result.verdicts.map(\.outcome) == [.holds, .fails, .fails, .fails])
        #expect(result.verdicts.last?.detail.contains("UTF-8 at byte 0 of data/notes") == true)
        let cases = try XMLReader(file: junit)
        #expect(cases.count("testcase") == 4 && cases.count("failure") == 3 && cases.count("error") == 0)
        #expect(cases.text.contains("<script>]]>"))
        let text = try String(contentsOfFile: html, encoding: .utf8)
        // The page has only its own two scripts, and its policy forbids a browser to run any other.
        #expect(text.components(separatedBy: "<script").count == 3)
        #expect(text.contains("content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'nonce-"))
        let page = try XMLReader(text)
        #expect(page.count("script") == 2)
        #expect(page.text.contains("<script>alert(1)</script> & \u{FFFD}") && page.text.contains("<script>'\"&"))
    }

    @Test("a step that cannot be done is an error, and later steps are skipped")
    func brokenStep() async throws {
        // The combining character before markup does not prevent its escaping.
        let name = #"\u0d4e</script><b>"#
        let steps = """
            {"do": "signIn", "user": "ada"}, {"do": "waitForMarker", "app": "\(name)", "marker": "x", "within": 100},
            {"do": "signOut"}, {"do": "expect", "absent": ["x"]}
            """
        let apps = #"[{"identifier": "\#(name)", "executable": "sleep", "arguments": ["600"]}]"#
        let result = try await CheckRunner(CheckPlan(json: CheckPlanTests.plan(steps, apps: apps))).run()
        #expect(!result.holds && result.failure?.step == 2 && result.verdicts.map(\.outcome) == [.skipped])
        let cases = try XMLReader(result.junit)
        #expect(cases.count("error") == 1 && cases.count("skipped") == 1)
        let page = try XMLReader(result.html)
        #expect(page.text.contains("was not in the data of ") && page.text.contains(" before time ran out"))
        #expect(page.text.contains("\u{d4e}</script><b>") && page.count("script") == 2 && page.count("b") == 0)
        #expect(result.text(inColor: true).contains("\u{1B}[31m") && !result.text().contains("\u{1B}"))
    }

    @Test("each kind of failure has its exit status")
    func exitStatus() async throws {
        #expect(try await check([]).status == 64)
        #expect(try await check(["/nonexistent/plan.json"]).status == 66)
        let wrong = try await check([try file(Data(#"{"apps": []}"#.utf8))])
        #expect(wrong.status == 65 && wrong.errors.contains("plan.json: $"), "\(wrong.errors)")
        let apps = #"[{"identifier": "a", "executable": "./not-built"}]"#
        let noApp = try await check(CheckPlanTests.expect, apps: apps)
        #expect(noApp.status == 66 && noApp.errors.contains("not-built cannot be run"), "\(noApp.errors)")
        _ = try directory.writeScript("shared-device-broker", "echo broken >&2\nexit 3")
        let plan = try file(CheckPlanTests.plan(CheckPlanTests.expect))
        let outcome = try await check([plan], environment: ["SHARED_DEVICE_PROGRAMS": directory.path])
        #expect(outcome.status == 69 && outcome.errors.contains("the device's broker does not start"), "\(outcome)")
    }

    /// A plan with a long pause and an app with a unique command line. After the app's end another process may get its
    /// id, so the command line identifies it.
    private static func longPlan(_ duration: String) -> Data {
        let apps = #"[{"identifier": "a", "executable": "sleep", "arguments": ["\#(duration)"]}]"#
        let steps = #"{"do": "signIn", "user": "ada"}, {"do": "pause", "milliseconds": 600000}, "#
        return CheckPlanTests.plan(steps + CheckPlanTests.expect, apps: apps)
    }

    @Test(
        "an interrupted check says so and leaves no process and no folder",
        arguments: [("starting bus", SIGINT), ("ada signs in", SIGTERM), ("a pause of", SIGINT)]
    )
    func interrupted(_ moment: String, _ signal: Int32) async throws {
        let temporary = try directory.folder()
        let duration = "600.\(UInt32.random(in: 100_000...999_999))"
        let plan = try file(Self.longPlan(duration))
        let (program, variables) = (ChildProcess.built("shared-device"), ["TMPDIR": temporary])
        let command = try ChildProcess(program, ["check", plan], environment: variables)
        try await eventually("the check is at “\(moment)”") { command.errorText.contains(moment) }
        command.send(signal)
        // A second Ctrl-C does not interrupt the cleanup.
        while command.isRunning {
            command.send(signal)
            try await Task.sleep(for: .milliseconds(2))
        }
        #expect(await command.exitStatus() == 128 + signal)
        #expect(command.errorText.hasSuffix("shared-device: interrupted"), "\(command.errorText)")
        #expect(try FileManager.default.contentsOfDirectory(atPath: temporary) == [])
        // Every process of the device has its folder, or the app's duration, on its command line.
        #expect(processes(with: temporary) == [] && processes(with: duration) == [])
    }

    @Test("unwritable report paths are found before the check begins")
    func reportsThatCannotBeWritten() async throws {
        let plan = try file(Self.longPlan("600"))
        for option in ["--html", "--junit", "--json"] {
            let missing = try await check([plan, option, "/nonexistent/report"])
            #expect(missing.status == 73 && missing.errors.contains("cannot write /nonexistent/report"), "\(missing)")
            #expect(try await check([plan, option, directory.path]).status == 73, "a folder is no file")
        }
        let kept = try await check([plan, "--keep"], environment: ["TMPDIR": "/nonexistent"])
        #expect(kept.status == 73 && kept.errors.contains("in TMPDIR") && !kept.errors.contains("Error Domain"))
        let nowhere = try await check([plan], environment: ["TMPDIR": "/nonexistent"])
        #expect(nowhere.status == 69)
        #expect(nowhere.errors.contains("name another place in TMPDIR") && !nowhere.errors.contains("Error Domain"))
        let script = "\(directory.path)/app.sh"
        try Data("#!/bin/sh\n".utf8).write(to: URL(fileURLWithPath: script))
        let apps = #"[{"identifier": "a", "executable": "\#(script)"}]"#
        let closed = try await check(CheckPlanTests.expect, apps: apps)
        #expect(closed.status == 66 && closed.errors.contains("chmod +x \(script)"), "\(closed.errors)")
    }
}

extension JSONDecoder {
    fileprivate static var withDates: JSONDecoder {
        let decoder = JSONDecoder()
        decoder.dateDecodingStrategy = .iso8601
        return decoder
    }
}
