import DBusTransport
import Foundation
import Glibc
import NotifyCenterTestKit
import SharedDevice
import StrictJSON
import Testing

@testable import SignInPrompt

/// A browser of the tests, without a screen.
struct TestBrowser: Sendable {
    /// As the prompt's option names it.
    let program: String
    let arguments: [String]

    static let chromium = TestBrowser(
        program: "chromium",
        arguments: ["--headless=new", "--no-sandbox", "--disable-gpu"]
    )
    /// Debian's has a name of its own.
    static let firefox = TestBrowser(
        program: BrowserChoice.isInPath("firefox-esr") ? "firefox-esr" : "firefox",
        arguments: ["--headless"]
    )

    var isThere: Bool { BrowserChoice.isInPath(program) }
}

/// How large the core of a process may be, in bytes.
struct CoreLimits: Equatable {
    let soft, hard: String

    /// The one limit by which the kernel neither writes a core nor hands it to a program; 0 where the tests have it and may not raise it.
    static let ofPrompts: CoreLimits = {
        // In a process of its own, because what is taken from a process does not come back.
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
    /// - Returns: `nil` where the process has ended.
    init?(of process: Int32) {
        let limits = try? String(contentsOfFile: "/proc/\(process)/limits", encoding: .utf8)
        let line = limits?.split(separator: "\n").first { $0.hasPrefix("Max core file size") }
        guard let words = line?.split(separator: " "), words.count > 5 else { return nil }
        self.init(soft: String(words[4]), hard: String(words[5]))
    }
}

/// A prompt that signs in by a browser at a provider's page, and what they talk to.
final class BrowserSignIn {
    let directory: TemporaryDirectory
    let broker: FakeBroker
    let page: ChildProcess
    private let browser: TestBrowser
    private let bus: PrivateBus
    /// Of this sign-in alone: others go on beside it.
    let state = "known-state-\(UUID().uuidString)"

    /// - Parameter lifetime: seconds until the sign-in is over; `nil`: as the broker has it.
    init(
        _ browser: TestBrowser = .chromium,
        holds: Bool = false,
        refusal: MethodFailure? = nil,
        lifetime: Double? = nil
    ) async throws {
        self.browser = browser
        bus = try PrivateBus()
        directory = try TemporaryDirectory("si")
        page = try ChildProcess("\(Self.folder)/login-page", holds ? ["hold"] : [])
        let port = try await page.line { $0.hasPrefix("ready ") }.dropFirst(6)
        broker = try await FakeBroker(bus) { [state] method, fields in
            switch method {
            case .beginSignIn:
                let query = [
                    ("state", state), ("redirect_uri", fields["redirectURI"]?.stringValue ?? ""),
                ]
                let end = lifetime.map { Date().timeIntervalSince1970 + $0 }
                return [
                    "request": .string("r1"), "method": .string("browser"),
                    "authorizationURL": .string("http://127.0.0.1:\(port)/authorize?\(FormFields.encode(query))"),
                ].merging(end.map { ["expiresAt": .double($0)] } ?? [:]) { $1 }
            case .completeSignIn:
                if let refusal { throw refusal }
                return FakeBroker.signedIn
            default: return [:]
            }
        }
    }

    // What a test that failed has left.
    deinit { for browser in (try? browsers()) ?? [] { kill(browser, SIGKILL) } }

    static var folder: String { URL(fileURLWithPath: #filePath).deletingLastPathComponent().path }

    func prompt() throws -> ChildProcess {
        let arguments = browser.arguments.flatMap { ["--browser-argument", $0] }
        return try ChildProcess(
            ChildProcess.built("shared-device-sign-in"),
            ["--bus", bus.address, "--json", "--browser", browser.program] + arguments,
            environment: ["XDG_RUNTIME_DIR": directory.path]
        )
    }

    /// Waits for the browser to be at the provider's page for the time of this number.
    func visit(_ number: Int) async throws -> String {
        try await eventually("visit \(number)") { visits.count >= number }
        return visits[number - 1]
    }

    private var visits: [String] { page.lines.filter { $0.hasPrefix("visit ") } }

    var profiles: [String] {
        (try? FileManager.default.contentsOfDirectory(atPath: "\(directory.path)/sign-in")) ?? []
    }

    /// All processes that have a text among their arguments or, on demand, their variables.
    func processes(with text: String, inVariables: Bool = false) throws -> [Int32] {
        try FileManager.default.contentsOfDirectory(atPath: "/proc").compactMap { Int32($0) }
            .filter { process in
                (inVariables ? ["cmdline", "environ"] : ["cmdline"]).contains {
                    FileManager.default.contents(atPath: "/proc/\(process)/\($0)")?
                        .range(of: Data(text.utf8)) != nil
                }
            }
    }

    /// The processes of the browser.
    func browsers() throws -> [Int32] {
        try processes(with: "\(directory.path)/sign-in/", inVariables: true)
    }

    /// Processes that the prompt has started.
    func children(of prompt: ChildProcess) throws -> [Int32] {
        try FileManager.default.contentsOfDirectory(atPath: "/proc/\(prompt.identifier)/task").flatMap { thread in
            let path = "/proc/\(prompt.identifier)/task/\(thread)/children"
            let text = (try? String(contentsOfFile: path, encoding: .utf8)) ?? ""
            return text.split(separator: " ").compactMap { Int32($0) }
        }
    }

    /// The first process of the prompt's browser. Processes that the browser leaves behind are the prompt's children, too, and may have smaller numbers:
    /// the kernel begins anew at some time.
    func browser(of prompt: ChildProcess) throws -> Int32 {
        let keeper = try keeper(of: prompt)
        let children = try children(of: prompt).filter { $0 != keeper }
        return try #require(children.min { start(of: $0) < start(of: $1) })
    }

    /// When a process has started, in the kernel's ticks; the largest number where it has ended.
    private func start(of process: Int32) -> UInt64 {
        let text = (try? String(contentsOfFile: "/proc/\(process)/stat", encoding: .utf8)) ?? ""
        // The name may have blanks and parentheses.
        let fields = text.split(separator: ")").last?.split(separator: " ") ?? []
        return fields.count > 19 ? UInt64(fields[19]) ?? .max : .max
    }

    /// The processes that watch over browsers of this user's prompts.
    func guards() throws -> [Int32] {
        let own = Set(try processes(with: "=\(directory.path)\0", inVariables: true))
        return try processes(with: "--guards-browser").filter(own.contains)
    }

    /// The one that the prompt has started.
    func keeper(of prompt: ChildProcess) throws -> Int32? {
        let guards = try guards()
        return try children(of: prompt).first(where: guards.contains)
    }

    /// No process has what only the browser and the broker are to know on its command line, or in its environment.
    func checkSecrets() throws {
        #expect(try processes(with: state, inVariables: true) == [])
    }
}
