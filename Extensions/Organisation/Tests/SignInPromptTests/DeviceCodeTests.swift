import Basics
import DBus
import Foundation
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Synchronization
import Testing

@testable import SignInPrompt

@Suite("A sign-in with a code for another device")
struct DeviceCodeTests {
    private static let address = "https://login.example/device?user_code=WDJB-MJHT"

    private static let begun: BrokerProtocol.Fields = [
        "request": .string("r1"), "method": .string("deviceCode"), "userCode": .string("WDJB-MJHT"),
        "verificationURI": .string("https://login.example/device"), "verificationURIComplete": .string(address),
        "interval": .double(5),
    ]

    /// A broker whose provider waits until the switch is on. The sign-in then has the given result.
    private func broker(
        _ bus: PrivateBus,
        _ isDone: Switch,
        _ end: @escaping @Sendable () throws -> BrokerProtocol.Fields
    ) async throws -> FakeBroker {
        try await FakeBroker(bus) { method, _ in
            switch method {
            case .beginSignIn: Self.begun
            case .awaitSignIn: isDone.isOn ? try end() : ["pending": .boolean(true), "interval": .double(0.1)]
            default: [:]
            }
        }
    }

    private final class Switch: Sendable {
        private let state = Locked(false)
        var isOn: Bool { state.withLock { $0 } }
        func turnOn() { state.withLock { $0 = true } }
    }

    @Test("the terminal shows code, address, host and warning, and waits for the user")
    func terminal() async throws {
        let bus = try PrivateBus()
        let done = Switch()
        let broker = try await broker(bus, done) { FakeBroker.signedIn }
        let prompt = try PromptDevice.atTerminal([
            ChildProcess.built("shared-device-sign-in"), "--bus", bus.address, "--method", "device-code",
            "--scope=orders.read", "--scope", "openid",
        ])
        try await eventually("the prompt polls again") { broker.asked(.awaitSignIn).count >= 2 }
        let screen = prompt.lines.joined(separator: "\n")
        for text in [
            "https://login.example/device", "a page of login.example", "WDJB-MJHT",
            "Never enter a code that another person reads out to you.",
        ] { #expect(screen.contains(text), "\(text)") }
        let begun = try #require(broker.asked(.beginSignIn).first)
        #expect(begun["methods"]?.stringsValue == ["deviceCode"] && begun["redirectURI"] == nil)
        #expect(begun["scopes"]?.stringsValue == ["orders.read", "openid"])
        done.turnOn()
        #expect(await prompt.exitStatus() == 0)
        #expect(prompt.lines.joined().contains("signed in as ada"))
    }

    @Test("a page shows the code, and the prompt continues by itself")
    func page() async throws {
        let bus = try PrivateBus()
        let done = Switch()
        let expired = FakeBroker.refusal(.loginExpired, "the code has expired; begin again")
        let broker = try await broker(bus, done) { throw expired }
        let prompt = try ChildProcess(
            ChildProcess.built("shared-device-sign-in"),
            ["--bus", bus.address, "--page", "--browser", "none", "--json", "--method", "device-code"],
            environment: ["LC_ALL": "C"]
        )
        let address = try await prompt.pageAddress()
        let page = try await Page.get(address)
        #expect(page.text.contains("WDJB-MJHT") && page.text.contains("<svg"))
        #expect(page.text.contains(#"http-equiv="refresh""#))
        done.turnOn()
        // The open page also shows the result.
        try await eventually("the page says that the code has expired") {
            try await Page.get(address).text.contains("begin again")
        }
        #expect(await prompt.exitStatus() == EX_TEMPFAIL)
        #expect(try PromptResult(prompt).code == "login_expired")
        withExtendedLifetime(broker) {}
    }

    @Test("addresses of the broker that are unsafe for a browser are refused")
    func addresses() throws {
        for address in [
            "javascript:alert(1)", "file:///etc/passwd", "https://", "https://a b", "--help", "https://a/\n",
        ] {
            var fields = Self.begun
            fields["verificationURI"] = .string(address)
            #expect(throws: BrokerProtocol.Malformed.self) { _ = try OpenRequest(fields, now: 0) }
        }
        for field in ["request", "method", "userCode", "verificationURI"] {
            var fields = Self.begun
            fields[field] = nil
            #expect(throws: BrokerProtocol.Malformed.self) { _ = try OpenRequest(fields, now: 0) }
        }
    }

    // MARK: The QR code

    private static let reader = BrowserChoice.isInPath("zbarimg") ? "zbarimg" : nil

    @Test(
        "the QR codes of terminal and page decode to the address",
        .enabled(if: reader != nil, "zbarimg (Debian's zbar-tools) is not installed")
    )
    func readable() async throws {
        let code = try #require(QRCode(Self.address))
        let directory = try TemporaryDirectory("qr")
        // As the terminal shows it: each character is two squares, one above the other.
        let letters: [Substring] = code.lines.map { line in line.split(separator: "m")[1].prefix { $0 != "\u{1B}" } }
        let rows = letters.flatMap { line in [line.map { "█▀".contains($0) }, line.map { "█▄".contains($0) }] }
        let squares = rows.map { row in row.map { $0 ? "0" : "255" } }
        let scale = 4
        let pixels = squares.flatMap { row in
            Array(repeating: row.flatMap { Array(repeating: $0, count: scale) }.joined(separator: " "), count: scale)
        }
        let image = "P2 \(squares[0].count * scale) \(pixels.count) 255\n\(pixels.joined(separator: "\n"))\n"
        let file = "\(directory.path)/code.pgm"
        try Data(image.utf8).write(to: URL(fileURLWithPath: file))
        let reader = try ChildProcess(Self.reader ?? "", ["--quiet", "--raw", file])
        #expect(await reader.exitStatus() == 0, "\(reader.errorText)")
        #expect(reader.lines == [Self.address])
        // The page has the same squares.
        let dark = code.rows.joined().count { $0 }
        #expect(code.svg(.english).split(separator: "h1v1h-1z").count == dark + 1)
    }

    @Test("a code is shown without a picture if its text is too long, and moves no cursor")
    func lines() {
        #expect(QRCode(String(repeating: "a", count: 4000)) == nil)
        let code = DeviceCode(code: "A", address: "https://login.example/" + String(repeating: "a", count: 4000))
        #expect(code.lines(withPicture: true).contains { $0.contains("    A") })
        let moving = DeviceCode(code: "A\u{1B}[2J", address: "https://login.example/")
        #expect(!moving.lines(withPicture: false).joined().contains("\u{1B}"))
    }
}
