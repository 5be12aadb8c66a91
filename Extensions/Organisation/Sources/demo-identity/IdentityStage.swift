import DemoStage
import ExampleSupport
import Foundation
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
import OpenIDConnect
@_spi(Extensions) import SharedDevice
@_spi(Extensions) import SharedDeviceTestKit
import TestProviders

/// A device whose users are known to a real provider: glewlwyd, a bus, the broker, the process that talks to the
/// provider, three apps, and their resource server. Each is a separate process.
final class IdentityStage {
    let directory: String
    let provider: Glewlwyd
    let bus: PrivateBus
    let broker: ChildProcess
    private let identity: ChildProcess
    private let service: ChildProcess
    let shop: AppProcess
    let flight: AppProcess
    let field: AppProcess
    private let temporary: TemporaryDirectory

    /// The directory of the profiles of the prompts' browsers.
    var signIns: String { "\(directory)/run/sign-in" }

    var apps: [AppProcess] { [shop, flight, field] }

    private static let names = ["point-of-sale", "flight-briefing", "field-service"]
    /// The password of both people, and the secret of the device, as glewlwyd's test harness sets them.
    static let (password, secret) = ("password-of-ada", "device-secret-7")
    private static let scope = "orders.read"

    /// The program that this machine lacks, with the remedy; `nil` if none.
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

    /// Starts all processes. On return broker, provider and resource server respond.
    ///
    /// - Parameter isShown: Whether the browser has a window, so that a person signs in.
    init(_ browser: DemoBrowser, isShown: Bool) async throws {
        // A short name: the paths of the browsers' sockets are below it and may have 107 bytes.
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
        // The credentials that systemd passes to the units.
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
            .appending(path: "../../../../Examples/ResourceServer/orders_service.py").standardized.path
        service = try ChildProcess(
            "/usr/bin/python3",
            // glewlwyd's audience is the list of scopes.
            [script, "--issuer", issuer, "--audience", "openid \(Self.scope)"]
        )
        let port = try await service.line { Int($0) != nil }
        for process in [broker, identity] { try await process.line { $0 == "ready" } }
        let prompt = try temporary.writeScript("prompt", Self.prompt(browser, isShown))
        let directory = directory
        let processes = try Self.names.map { name in
            try AppProcess(
                name,
                bus: bus.address,
                directory: directory,
                arguments: ["--service", "http://127.0.0.1:\(port)/orders"],
                environment: ["SHARED_DEVICE_SIGN_IN": prompt, "XDG_RUNTIME_DIR": "\(directory)/run"]
            )
        }
        (shop, flight, field) = (processes[0], processes[1], processes[2])
    }

    /// The prompt as it is installed, with a browser that the demonstration can control.
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

    var transcript: String {
        let parts =
            apps.map { ($0.name, $0.transcript) } + [
                ("shared-device-broker", broker.errorText), ("shared-device-identity", identity.errorText),
                ("glewlwyd", provider.process.errorText), ("orders_service.py", service.errorText),
            ]
        return parts.map { "--- \($0)\n\($1)" }.joined(separator: "\n")
    }
}

enum DemoBrowser: String, CaseIterable {
    case chromium, firefox

    var program: String { self == .chromium ? "chromium" : "firefox-esr" }

    fileprivate func arguments(isShown: Bool) -> [String] {
        switch self {
        case .chromium:
            let headless = ["--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0"]
            // The browser's sandbox does not work for root and in many containers. Here the browser only opens the
            // demonstration's own pages.
            return isShown ? (geteuid() == 0 ? ["--no-sandbox"] : []) : headless + ["--no-sandbox"]
        case .firefox: return isShown ? [] : ["--headless", "--remote-debugging-port=0"]
        }
    }
}

/// A person who signs in at the provider's page, simulated by the script `person`.
struct Visitor {
    /// The state of a page before anything was typed.
    struct Question: Decodable, Sendable {
        /// The text of the page.
        let asked: [String]
        /// The initial content of the field for the name.
        let filled: String
        /// The number of cookies in the browser.
        let cookies: Int
    }

    let question: Question
    /// When the last page was submitted, by ``MonotonicClock``.
    let submitted: UInt64

    /// Signs a person in, in the browser of the prompt that was just started.
    init(_ name: String, in signIns: String) async throws {
        let script = URL(fileURLWithPath: #filePath).deletingLastPathComponent().appending(path: "person")
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
