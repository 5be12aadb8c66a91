import Basics
import DBus
import Foundation
@_spi(Extensions) import NotifyCenterTestKit
import Synchronization
import Testing

@_spi(Extensions) @testable import SharedDevice

@Suite("Browser sign-out")
struct BrowserSignoutTests {
    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory("opener") }

    private static let page = "https://login.example/logout?client_id=device"

    /// Parameters with a deadline that no test reaches.
    private static var parameters: SignoutParameters {
        var parameters = SignoutParameters(signoutFromBrowser: true)
        parameters.browserDeadline = .seconds(120)
        return parameters
    }

    private func signOut(_ device: DeviceOnPrivateBus, _ parameters: SignoutParameters) async throws -> BrowserSignout {
        let application = device.application()
        let account = try await application.signIn("ada").account
        let result = try await application.signout(with: account, signoutParameters: parameters)
        #expect(try await application.getCurrentAccount().current == nil)
        return result.browser
    }

    @Test("a configured page is opened on request, and its failure fails no sign-out")
    func opened() async throws {
        let device = try await DeviceOnPrivateBus(configuration: #""endSessionURL": "\#(Self.page)""#)
        let seen = Log()
        let application = device.application("looker")
        var parameters = Self.parameters
        parameters.browserOpener = BrowserOpener { address in
            seen.add(address)
            seen.add(try await application.getCurrentAccount().current?.username ?? "nobody")
        }
        #expect(try await signOut(device, parameters) == .opened)
        #expect(seen.lines == [Self.page, "nobody"])
        struct NoScreen: Error {}
        parameters.browserOpener = BrowserOpener { _ in throw NoScreen() }
        #expect(try await signOut(device, parameters) == .failed("NoScreen()"))
        let held = Locked<CheckedContinuation<Void, Never>?>(nil)
        parameters.browserOpener = BrowserOpener { _ in
            // It ignores its cancellation.
            await withCheckedContinuation { continuation in held.withLock { $0 = continuation } }
        }
        parameters.browserDeadline = .milliseconds(100)
        #expect(try await signOut(device, parameters) == .timedOut)
        try await eventually("it was called") { held.withLock { $0 != nil } }
        held.withLock { $0 }?.resume()
        // Without a request or a configured page no page is opened.
        parameters.browserOpener = BrowserOpener { address in Issue.record("\(address) was opened") }
        parameters.signoutFromBrowser = false
        #expect(try await signOut(device, parameters) == .notRequested)
        parameters.signoutFromBrowser = true
        #expect(try await signOut(try await DeviceOnPrivateBus(), parameters) == .notConfigured)
    }

    @Test("only https pages and the machine's own http pages are opened")
    func addresses() {
        let allowed = [
            Self.page, "HTTPS://login.example", "http://localhost:8080/logout", "http://127.0.0.1/o", "http://[::1]:1/",
        ]
        let forbidden = [
            "http://127.0.0.1.example/", "http://login.example/", "http://localhost.evil.example/", "file:///etc/hosts",
            "javascript:alert(1)", "https://", "--help", "https://a.example/ b", "https://a.example/\n", "",
        ]
        #expect((allowed + forbidden).filter(EndSessionPage.isAllowed) == allowed)
    }

    @Test("a program gets its exact arguments and no descriptor, and may fail or be missing")
    func helperArguments() async throws {
        let script = #"printf '%s\n' "$@" > "$0.arguments"; ls /proc/$$/fd > "$0.descriptors""#
        let path = try directory.writeScript("opener", script)
        // Inheritable, like a descriptor of a careless library.
        let original = open("/dev/null", O_RDONLY)
        let descriptor = fcntl(original, F_DUPFD, 200)
        defer {
            close(original)
            close(descriptor)
        }
        try #require(descriptor >= 200)
        try await HelperProcess.run("sh", [path, "https://a.example/?a=1&b=$(id);x='", "second one"])
        let arguments = try String(contentsOfFile: "\(path).arguments", encoding: .utf8)
        #expect(arguments == "https://a.example/?a=1&b=$(id);x='\nsecond one\n")
        let descriptors = try String(contentsOfFile: "\(path).descriptors", encoding: .utf8).split(separator: "\n")
        #expect(!descriptors.isEmpty && !descriptors.contains("\(descriptor)"))
        let failing = try directory.writeScript("failing", "exit 3")
        let failure = await #expect(throws: HelperProcess.Failure.self) { try await HelperProcess.run("sh", [failing]) }
        #expect(failure?.description == "sh ended with status 3")
        await #expect(throws: HelperProcess.Failure.self) { try await HelperProcess.run("\(failing)-missing", []) }
    }

    @Test("a hanging program is killed on cancellation or after its time; no zombie is left")
    func helperHangs() async throws {
        let path = try directory.writeScript("opener", #"echo $$ > "$0.new"; mv "$0.new" "$0.pid"; exec sleep 1000"#)
        let running = Task { try await HelperProcess.run("sh", [path]) }
        try await eventually("it runs") { FileManager.default.fileExists(atPath: "\(path).pid") }
        let text = try String(contentsOfFile: "\(path).pid", encoding: .utf8)
        let identifier = try #require(pid_t(text.trimmingCharacters(in: .whitespacesAndNewlines)))
        running.cancel()
        await #expect(throws: HelperProcess.Failure.self) { try await running.value }
        // Sending a signal to a zombie would succeed.
        #expect(kill(identifier, 0) == -1)
        let other = Task { try await HelperProcess.output(of: "sleep", ["1000"], patience: .seconds(120)).status }
        other.cancel()
        #expect(try await other.value == 128 + SIGKILL)
        var patience = Duration.milliseconds(300)
        var output: String
        // On a slow machine the program may not have started yet, so retry with more time.
        repeat {
            let late = try await HelperProcess.output(of: "sh", ["-c", "echo hi; exec sleep 1000"], patience: patience)
            #expect(late.status == 128 + SIGKILL)
            output = late.text
            patience = patience * 2
        } while output.isEmpty && patience < .seconds(120)
        #expect(output == "hi\n")
    }

    private func output(_ command: String, limit: Int) async throws -> (status: Int32?, text: String) {
        try await HelperProcess.output(of: "sh", ["-c", command], limit: limit, patience: .seconds(120))
    }

    @Test("output is complete up to its limit, and a child that goes on delays no caller")
    func output() async throws {
        let command = "yes | head -c 300000; echo end"
        let whole = try await output(command, limit: 1_000_000)
        #expect(whole.text.utf8.count == 300_004 && whole.text.hasSuffix("end\n"))
        let part = try await HelperProcess.output(of: "sh", ["-c", command], patience: .seconds(120))
        #expect(part.text.utf8.count == 65_536 && part.status == 0)
        var texts: [String] = []
        let time = try await ContinuousClock().measure {
            for command in ["sleep 1000 & echo $!; echo hi", "while :; do echo late; done & echo $!; echo hi"] {
                let (status, text) = try await output(command, limit: 1 << 30)
                #expect(status == 0)
                texts.append(text)
            }
        }
        for text in texts {
            let child = try #require(text.split(separator: "\n").lazy.compactMap { pid_t($0) }.first)
            kill(child, SIGKILL)
            #expect(text.contains("hi\n"))
        }
        #expect(time < .seconds(60))
    }
}
