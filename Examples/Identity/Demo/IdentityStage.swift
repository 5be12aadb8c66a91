import DemoStage
import ExampleSupport
import Foundation
import Glibc
import NotifyCenterTestKit
import OpenIDConnect
import SharedDevice
import SharedDeviceTestKit
import TestProviders

/// A device whose people a real provider knows: glewlwyd, a bus, the broker, the process that speaks to the provider, three apps, and a service that they
/// are clients of. Each is a process of its own.
final class IdentityStage {
    let directory: String
    let provider: Glewlwyd
    let bus: PrivateBus
    let broker: ChildProcess
    private let identity: ChildProcess
    private let service: ChildProcess
    let apps: [AppProcess]
    private let temporary: TemporaryDirectory

    /// Where the prompts' browsers have their profiles.
    var signIns: String { "\(directory)/run/sign-in" }

    static let names = ["point-of-sale", "flight-briefing", "field-service"]
    /// The password of both people, and the secret of the device, as the harness of glewlwyd sets them.
    static let (password, secret) = ("password-of-ada", "device-secret-7")
    private static let scope = "orders.read"

    /// What this machine lacks for it, with the remedy; `nil` if nothing.
    static func reasonToLeaveOut(_ browser: DemoBrowser) async throws -> String? {
        guard access(Glewlwyd.program, X_OK) == 0 else {
            return
                "glewlwyd is not installed: make demo-identity installs it, or apt-get install --no-install-recommends glewlwyd"
        }
        guard FileManager.default.isExecutableFile(atPath: "/usr/bin/\(browser.program)") else {
            return "\(browser.program) is not installed: apt-get install \(browser.program)"
        }
        let libraries = try ChildProcess("/usr/bin/python3", ["-c", "import jwt, cryptography"])
        guard await libraries.exitStatus() == 0 else {
            return "Python's libraries are not installed: apt-get install python3-jwt python3-cryptography"
        }
        return nil
    }

    /// Starts all of it. On return broker, provider and service answer.
    ///
    /// - Parameters:
    ///   - browser: shows the provider's page.
    ///   - isShown: whether the browser has a window, so that a person signs in.
    init(_ browser: DemoBrowser, isShown: Bool) async throws {
        // The sockets of browsers are below it, whose names may have 107 bytes.
        temporary = try TemporaryDirectory("idp")
        directory = temporary.path
        for name in ["apps", "data", "events", "run", "secrets"] { try Files.makeDirectory("\(directory)/\(name)") }
        let ports = try (0..<4).map { _ in try freePort() }
        let (redirects, logout) = (ports.dropLast(), ports[3])
        provider = try await Glewlwyd(
            options: ["--pages", "--logout", "http://127.0.0.1:\(logout)/"]
                + redirects.flatMap { ["--redirect", "\($0)"] }
        )
        let issuer = provider.issuer.text
        let configuration = "\(directory)/managed-configuration.json"
        let settings = """
            {"sharedDeviceMode": true, "organization": "Contoso", "cleanupPolicy": "strict", "identity": "oidc", "oidcIssuer": "\(issuer)",
             "oidcClientID": "device-7", "oidcScopes": ["openid", "\(Self.scope)"], "oidcLoopbackPorts": \(Array(redirects)),
             "backChannelLogout": "127.0.0.1:\(logout)"}
            """
        try Files.write(Data(settings.utf8), to: configuration)
        try Self.enrol(in: directory)
        // What systemd hands to the units as credentials.
        try Files.write(Data("\(Self.secret)\n".utf8), to: "\(directory)/secrets/oidc-client-secret")
        try Files.write(
            Data((0..<32).map { _ in UInt8.random(in: .min ... .max) }),
            to: "\(directory)/secrets/token-key"
        )
        let bus = try PrivateBus()
        self.bus = bus
        let credentials = ["CREDENTIALS_DIRECTORY": "\(directory)/secrets"]
        broker = try ChildProcess(
            ChildProcess.built("shared-device-broker"),
            ["--bus", bus.address, "--state", "\(directory)/broker", "--configuration", configuration],
            environment: credentials
        )
        identity = try ChildProcess(
            ChildProcess.built("shared-device-identity"),
            ["--bus", bus.address, "--configuration", configuration],
            environment: credentials
        )
        let script = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
            .appending(path: "../../ResourceServer/orders_service.py").standardized.path
        service = try ChildProcess(
            "/usr/bin/python3",
            // glewlwyd calls its services by what tokens permit.
            [script, "--issuer", issuer, "--audience", "openid \(Self.scope)"]
        )
        let port = try await service.line { Int($0) != nil }
        for process in [broker, identity] { try await process.line { $0 == "ready" } }
        let prompt = try temporary.writeScript("prompt", Self.prompt(browser, isShown))
        let directory = directory
        apps = try Self.names.map { name in
            try AppProcess(
                name,
                bus: bus.address,
                directory: directory,
                arguments: ["--service", "http://127.0.0.1:\(port)/orders"],
                environment: ["SHARED_DEVICE_SIGN_IN": prompt, "XDG_RUNTIME_DIR": "\(directory)/run"]
            )
        }
    }

    /// The prompt as it is installed, with a browser that the demonstration types into.
    private static func prompt(_ browser: DemoBrowser, _ isShown: Bool) -> String {
        let words = browser.arguments(isShown: isShown).map { "--browser-argument \($0)" }.joined(separator: " ")
        return #"exec "\#(ChildProcess.built("shared-device-sign-in"))" "$@" --browser \#(browser.program) \#(words)"#
    }

    private static func enrol(in directory: String) throws {
        func manifest(_ identifier: String, _ program: String, scopes: [String]) throws {
            let text =
                #"{"id": "\#(identifier)", "executable": "\#(ChildProcess.built(program))", "scopes": \#(scopes)}"#
            try Files.write(Data(text.utf8), to: "\(directory)/apps/\(program).json")
        }
        for name in names { try manifest(ExampleApp.identifier(name), name, scopes: [scope]) }
        try manifest(ExampleApp.identifier("demo-identity"), "demo-identity", scopes: [])
        try manifest("org.notifycenter.shared-device-sign-in", "shared-device-sign-in", scopes: [])
    }

    subscript(_ name: String) -> AppProcess {
        get throws {
            guard let app = apps.first(where: { $0.name == name }) else { throw DemoFailure("there is no app \(name)") }
            return app
        }
    }

    /// The output of every process.
    var transcript: String {
        let parts =
            apps.map { ($0.name, $0.transcript) } + [
                ("shared-device-broker", broker.errorText), ("shared-device-identity", identity.errorText),
                ("glewlwyd", provider.process.errorText), ("orders_service.py", service.errorText),
            ]
        return parts.map { "--- \($0)\n\($1)" }.joined(separator: "\n")
    }
}

/// The browser of the prompts.
enum DemoBrowser: String, CaseIterable {
    case chromium, firefox

    /// Debian's.
    var program: String { self == .chromium ? "chromium" : "firefox-esr" }

    fileprivate func arguments(isShown: Bool) -> [String] {
        switch self {
        case .chromium:
            let headless = ["--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0"]
            // The browser's sandbox is refused to root, and in many containers; the only pages are the demonstration's own.
            return isShown ? (geteuid() == 0 ? ["--no-sandbox"] : []) : headless + ["--no-sandbox"]
        case .firefox: return isShown ? [] : ["--headless", "--remote-debugging-port=0"]
        }
    }
}

/// Somebody who signs in at the provider's page, as `Examples/Identity/person` does it, or by hand.
struct Visitor {
    /// What a page asked before anything was typed in.
    struct Question: Decodable, Sendable {
        /// The words of the page.
        let asked: [String]
        /// What stood in the field for the name.
        let filled: String
        /// How many cookies the browser had.
        let cookies: Int
    }

    let question: Question
    /// When the last page was submitted, by ``MonotonicClock``.
    let submitted: UInt64

    /// Signs somebody in at the browser of the prompt that was just started.
    init(_ name: String, in signIns: String) async throws {
        let script = URL(fileURLWithPath: #filePath).deletingLastPathComponent().appending(path: "../person")
            .standardized
        let person = try ChildProcess("/usr/bin/python3", [script.path, signIns, name, IdentityStage.password])
        let status = await person.exitStatus()
        guard status == 0, person.lines.count == 2 else {
            throw DemoFailure("at the provider's page: \(person.errorText)")
        }
        struct Submission: Decodable { let submitted: UInt64 }
        question = try JSONDecoder().decode(Question.self, from: Data(person.lines[0].utf8))
        submitted = try JSONDecoder().decode(Submission.self, from: Data(person.lines[1].utf8)).submitted
    }
}
