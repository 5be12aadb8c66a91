import DBusTransport
import Foundation
import Glibc
import NotifyCenterTestKit
import SharedDevice
import StrictJSON
import Synchronization
import Testing

@testable import SignInPrompt

/// A browser without a screen.
private let chromium = BrowserChoice.isInPath("chromium") ? "chromium" : nil

@Suite("The browser of a sign-in", .enabled(if: chromium != nil, "chromium is not installed"))
struct BrowserTests {
    /// A prompt that signs in by Chromium at a provider's page, and what they talk to.
    private final class SignIn {
        let directory: TemporaryDirectory
        let broker: FakeBroker
        let page: ChildProcess
        private let bus: PrivateBus
        private static let state = "known-state-of-this-sign-in"

        init(holds: Bool = false, refusal: MethodFailure? = nil) async throws {
            bus = try PrivateBus()
            directory = try TemporaryDirectory("si")
            page = try ChildProcess("\(Self.folder)/login-page", holds ? ["hold"] : [])
            let port = try await page.line { $0.hasPrefix("ready ") }.dropFirst(6)
            broker = try await FakeBroker(bus) { method, fields in
                switch method {
                case .beginSignIn:
                    let query = [
                        ("state", Self.state), ("redirect_uri", fields["redirectURI"]?.stringValue ?? ""),
                    ]
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

        // What a test that failed has left.
        deinit { for browser in (try? browsers()) ?? [] { kill(browser, SIGKILL) } }

        static var folder: String { URL(fileURLWithPath: #filePath).deletingLastPathComponent().path }

        func prompt() throws -> ChildProcess {
            let arguments = ["--headless=new", "--no-sandbox", "--disable-gpu"].flatMap { ["--browser-argument", $0] }
            return try ChildProcess(
                ChildProcess.built("shared-device-sign-in"),
                ["--bus", bus.address, "--json", "--browser", "chromium"] + arguments,
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

        /// No process has what only the browser and the broker are to know on its command line, or in its environment.
        func checkSecrets() throws {
            #expect(try processes(with: Self.state, inVariables: true) == [])
        }
    }

    @Test("the next person is not signed in as the last one: no cookie of a sign-in is there in the next")
    func cookies() async throws {
        let signIn = try await SignIn()
        for number in 1...2 {
            let prompt = try signIn.prompt()
            #expect(await prompt.exitStatus() == 0, "\(prompt.errorText)")
            #expect(try PromptResult(prompt) == PromptResult(username: "ada", epoch: 7))
            #expect(try await signIn.visit(number) == "visit -")
            let query = try #require(signIn.broker.asked(.completeSignIn).last?["query"]?.stringValue)
            #expect(FormFields.decode(query) == ["code": "a code", "state": "known-state-of-this-sign-in"])
            #expect(signIn.profiles == [])
            #expect(try signIn.browsers() == [])
        }
    }

    @Test("while the browser is open, its profile is its user's alone, and no command line has the sign-in's address")
    func secrets() async throws {
        let signIn = try await SignIn(holds: true)
        let prompt = try signIn.prompt()
        _ = try await signIn.visit(1)
        try signIn.checkSecrets()
        let profile = try #require(signIn.profiles.first)
        for path in ["sign-in", "sign-in/\(profile)"] {
            let attributes = try FileManager.default.attributesOfItem(atPath: "\(signIn.directory.path)/\(path)")
            #expect(attributes[.posixPermissions] as? Int == 0o700, "\(path)")
        }
        try signIn.page.write("go on")
        #expect(await prompt.exitStatus() == 0)
    }

    @Test("who closes the browser cancels the sign-in")
    func closed() async throws {
        let signIn = try await SignIn(holds: true)
        let prompt = try signIn.prompt()
        _ = try await signIn.visit(1)
        // The first process of the browser is the child of the prompt.
        let children = try String(
            contentsOfFile: "/proc/\(prompt.identifier)/task/\(prompt.identifier)/children",
            encoding: .utf8
        )
        let threads = try FileManager.default.contentsOfDirectory(atPath: "/proc/\(prompt.identifier)/task")
        let all =
            children
            + threads.compactMap {
                try? String(contentsOfFile: "/proc/\(prompt.identifier)/task/\($0)/children", encoding: .utf8)
            }.joined(separator: " ")
        let browser = try #require(all.split(separator: " ").compactMap { Int32($0) }.min())
        kill(browser, SIGTERM)
        #expect(await prompt.exitStatus() == 1)
        #expect(try PromptResult(prompt).code == "user_canceled")
        #expect(signIn.broker.asked(.cancelSignIn).count == 1)
        #expect(signIn.profiles == [])
        #expect(try signIn.browsers() == [])
    }

    @Test("SIGTERM cancels the sign-in, ends the browser, and deletes the profile")
    func terminated() async throws {
        let signIn = try await SignIn(holds: true)
        let prompt = try signIn.prompt()
        _ = try await signIn.visit(1)
        prompt.send(SIGTERM)
        #expect(await prompt.exitStatus() == 1)
        #expect(signIn.broker.asked(.cancelSignIn).count == 1)
        #expect(signIn.profiles == [])
        #expect(try signIn.browsers() == [])
    }

    @Test("the browser and the profile of a prompt that was killed are gone before the next browser is open")
    func killed() async throws {
        let signIn = try await SignIn(holds: true)
        let first = try signIn.prompt()
        _ = try await signIn.visit(1)
        first.kill()
        #expect(await first.exitStatus() == 128 + SIGKILL)
        let left = try #require(signIn.profiles.first)
        #expect(try signIn.browsers() != [])
        let second = try signIn.prompt()
        #expect(try await signIn.visit(2) == "visit -")
        #expect(!signIn.profiles.contains(left), "\(second.errorText)")
        #expect(try signIn.processes(with: "/\(left)/", inVariables: true) == [])
        // The first line is for the browser that was killed.
        try signIn.page.write("go on")
        try signIn.page.write("go on")
        #expect(await second.exitStatus() == 0)
        #expect(signIn.profiles == [])
    }

    @Test("two prompts of one user do not disturb each other's browsers")
    func two() async throws {
        let signIn = try await SignIn(holds: true)
        let first = try signIn.prompt()
        _ = try await signIn.visit(1)
        let second = try signIn.prompt()
        _ = try await signIn.visit(2)
        #expect(signIn.profiles.count == 2)
        try signIn.page.write("go on")
        try signIn.page.write("go on")
        #expect(await first.exitStatus() == 0)
        #expect(await second.exitStatus() == 0)
        #expect(signIn.profiles == [])
    }

    @Test("what the provider or the broker refuses is an error, after the person could read it")
    func refused() async throws {
        let refusal = FakeBroker.refusal(.providerMisconfigured, "register the address with the provider")
        let signIn = try await SignIn(refusal: refusal)
        let prompt = try signIn.prompt()
        try await eventually("the reason is said") { prompt.errorText.contains("register the address") }
        // The page stays until the person closes it; here, somebody ends the prompt.
        prompt.send(SIGTERM)
        #expect(await prompt.exitStatus() == EX_CONFIG)
        #expect(try PromptResult(prompt).code == "provider_misconfigured")
        #expect(signIn.profiles == [])
    }

    @Test("a person signs in on the page by the keyboard alone, after one mistake")
    func keyboard() async throws {
        let device = try await PromptDevice()
        let (prompt, address) = try await device.page()
        for (password, expected) in [("wrong horse", "wrong"), ("correct horse ada", "ada is signed in")] {
            let visitor = try ChildProcess(
                "\(SignIn.folder)/page-visitor",
                ["chromium", "\(device.directory.path)/b", address, password == "wrong horse" ? "ada" : "", password]
            )
            #expect(await visitor.exitStatus() == 0, "\(visitor.errorText)")
            #expect(visitor.lines.count == 2)
            #expect(visitor.lines.last?.contains(expected) == true, "\(visitor.lines)")
        }
        #expect(await prompt.exitStatus() == 0)
    }
}
