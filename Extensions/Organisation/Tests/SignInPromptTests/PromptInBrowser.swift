import Basics
import DBus
import DBusService
import Foundation
import Glibc
import Identity
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Testing

@testable import SignInPrompt

/// A headless browser for tests.
struct TestBrowser: Sendable {
    /// The value of the prompt's option.
    let program: String
    let arguments: [String]

    static let chromium = TestBrowser(
        program: "chromium",
        arguments: ["--headless=new", "--no-sandbox", "--disable-gpu"]
    )
    /// Debian's package has another name.
    static let firefox = TestBrowser(
        program: BrowserChoice.isInPath("firefox-esr") ? "firefox-esr" : "firefox",
        arguments: ["--headless"]
    )

    var isThere: Bool { BrowserChoice.isInPath(program) }
}

/// All processes with these texts in their arguments or, on request, their environment.
func processes(with texts: String..., inVariables: Bool = false) throws -> [Int32] {
    try FileManager.default.contentsOfDirectory(atPath: "/proc").compactMap { Int32($0) }.filter { process in
        (inVariables ? ["cmdline", "environ"] : ["cmdline"]).contains { file in
            let content = FileManager.default.contents(atPath: "/proc/\(process)/\(file)") ?? Data()
            return texts.allSatisfy { content.range(of: Data($0.utf8)) != nil }
        }
    }
}

/// The limits of a process's core dump, in bytes.
struct CoreLimits: Equatable {
    let soft, hard: String

    /// The only limit at which the kernel neither writes a core nor pipes it to a program; 0 if the tests have that
    /// limit and may not raise it.
    static let ofPrompts: CoreLimits = {
        // Measured in a child process, because a lowered limit cannot be raised again.
        let raised = try? ChildProcess(
            "/bin/sh",
            ["-c", "ulimit -c 0; ulimit -c 1 2>/dev/null && ulimit -c; ulimit -H -c"]
        )
        raised?.waitUntilExit()
        var own = rlimit()
        getrlimit(__rlimit_resource_t(RLIMIT_CORE.rawValue), &own)
        let mayRaise = own.rlim_max > 0 || raised?.lines.count == 2
        let limit = mayRaise ? "1" : "0"
        return CoreLimits(soft: limit, hard: limit)
    }()

    var permitNone: Bool { [soft, hard].allSatisfy { ["0", "1"].contains($0) } }
}

extension CoreLimits {
    /// - Returns: `nil` if the process has ended.
    init?(of process: Int32) {
        let limits = try? String(contentsOfFile: "/proc/\(process)/limits", encoding: .utf8)
        let line = limits?.split(separator: "\n").first { $0.hasPrefix("Max core file size") }
        guard let words = line?.split(separator: " "), words.count > 5 else { return nil }
        self.init(soft: String(words[4]), hard: String(words[5]))
    }
}

/// A prompt that signs in with a browser at a provider's page, with a fake broker and provider.
final class PromptInBrowser {
    let directory: TemporaryDirectory
    let broker: FakeBroker
    let page: ChildProcess
    private var prompts: [ChildProcess] = []
    private let browser: TestBrowser
    private let bus: PrivateBus
    /// Unique, because other sign-ins run at the same time.
    let state = "known-state-\(UUID().uuidString)"

    init(_ browser: TestBrowser = .chromium, holds: Bool = false, refusal: MethodFailure? = nil) async throws {
        self.browser = browser
        bus = try PrivateBus()
        directory = try TemporaryDirectory("si")
        page = try ChildProcess("\(Self.folder)/login-page", holds ? ["hold"] : [])
        let port = try await page.line { $0.hasPrefix("ready ") }.dropFirst(6)
        broker = try await FakeBroker(bus) { [state] method, fields in
            switch method {
            case .beginSignIn:
                let query = [("state", state), ("redirect_uri", fields["redirectURI"]?.stringValue ?? "")]
                return [
                    "request": .string("r1"), "method": .string("browser"),
                    "authorizationURL": .string("http://127.0.0.1:\(port)/authorize?\(FormFields.encode(query))"),
                ]
            case .completeSignIn:
                if let refusal { throw refusal }
                return FakeBroker.signedIn
            default: return [:]
            }
        }
    }

    // Ends the browsers that a failed test left.
    deinit { for browser in (try? browsers()) ?? [] { kill(browser, SIGKILL) } }

    static var folder: String { URL(fileURLWithPath: #filePath).deletingLastPathComponent().path }

    func prompt() throws -> ChildProcess {
        let arguments = browser.arguments.flatMap { ["--browser-argument", $0] }
        let prompt = try ChildProcess(
            ChildProcess.built("shared-device-sign-in"),
            ["--bus", bus.address, "--json", "--browser", browser.program] + arguments,
            environment: ["XDG_RUNTIME_DIR": directory.path]
        )
        prompts.append(prompt)
        return prompt
    }

    /// Waits for the browser's visit of this number to the provider's page.
    func visit(_ number: Int) async throws -> String {
        do {
            try await eventually("visit \(number)") { visits.count >= number }
        } catch {
            // A prompt that has failed explains it.
            throw NoVisit(description: "\(error): \(prompts.map { $0.lines + [$0.errorText] })")
        }
        return visits[number - 1]
    }

    struct NoVisit: Error, CustomStringConvertible { let description: String }

    private var visits: [String] { page.lines.filter { $0.hasPrefix("visit ") } }

    var profiles: [String] { (try? FileManager.default.contentsOfDirectory(atPath: "\(directory.path)/sign-in")) ?? [] }

    func browsers() throws -> [Int32] {
        try processes(with: "\(directory.path)/sign-in/", inVariables: true)
    }

    func children(of prompt: ChildProcess) throws -> [Int32] {
        try FileManager.default.contentsOfDirectory(atPath: "/proc/\(prompt.identifier)/task").flatMap { thread in
            let path = "/proc/\(prompt.identifier)/task/\(thread)/children"
            let text = (try? String(contentsOfFile: path, encoding: .utf8)) ?? ""
            return text.split(separator: " ").compactMap { Int32($0) }
        }
    }

    /// The first process of the prompt's browser. Orphans of the browser are also children of the prompt and may have
    /// smaller numbers, because the kernel's numbers wrap around.
    func browser(of prompt: ChildProcess) throws -> Int32 {
        let keeper = try keeper(of: prompt)
        let children = try children(of: prompt).filter { $0 != keeper }
        return try #require(children.min { start(of: $0) < start(of: $1) })
    }

    /// The start time of a process in clock ticks; the maximum if it has ended.
    private func start(of process: Int32) -> UInt64 {
        let text = (try? String(contentsOfFile: "/proc/\(process)/stat", encoding: .utf8)) ?? ""
        // The name may contain spaces and parentheses.
        let fields = text.split(separator: ")").last?.split(separator: " ") ?? []
        return fields.count > 19 ? UInt64(fields[19]) ?? .max : .max
    }

    func guards() throws -> [Int32] {
        let own = Set(try processes(with: "=\(directory.path)\0", inVariables: true))
        return try processes(with: "--guards-browser").filter(own.contains)
    }

    /// The guard that the prompt has started.
    func keeper(of prompt: ChildProcess) throws -> Int32? {
        let guards = try guards()
        return try children(of: prompt).first(where: guards.contains)
    }

    /// Signs in twice, and checks that each sign-in has its own cookies and leaves nothing.
    func checkCookies() async throws {
        for number in 1...2 {
            let prompt = try prompt()
            #expect(await prompt.exitStatus() == 0, "\(prompt.errorText)")
            // The browser's standard output is not mixed into the prompt's.
            #expect(try PromptResult(prompt) == PromptResult(username: "ada", epoch: 7), "\(prompt.lines)")
            #expect(try await visit(number) == "visit -")
            let query = try #require(broker.asked(.completeSignIn).last?["query"]?.stringValue)
            #expect(FormFields.decode(query) == ["code": "a code", "state": state])
            #expect(try profiles == [] && browsers() == [])
        }
    }

    /// Closes the browser of the only prompt, and checks that this cancels the sign-in.
    func checkClosing(_ prompt: ChildProcess) async throws {
        kill(try browser(of: prompt), SIGTERM)
        #expect(await prompt.exitStatus() == 1)
        #expect(try PromptResult(prompt).code == "user_canceled")
        #expect(try broker.asked(.cancelSignIn).count == 1 && profiles == [] && browsers() == [])
    }

    /// Checks that no process has the secret of browser and broker in its command line or environment.
    func checkSecrets() throws {
        #expect(try processes(with: state, inVariables: true) == [])
    }
}
