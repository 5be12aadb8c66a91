import Foundation
import Glibc
import Identity
@_spi(Extensions) import NotifyCenterTestKit
import OpenIDConnect
@_spi(Extensions) import SharedDevice
import TestProviders
import Testing

@Suite("shared-device provider check")
struct ProviderCheckTests {
    struct Report: Decodable {
        struct Step: Decodable {
            let name: String
            let outcome: String
            let text: String
        }

        let works: Bool
        let steps: [Step]

        func outcome(_ name: String) -> String? { steps.first { $0.name == name }?.outcome }
        func text(_ name: String) -> String { steps.first { $0.name == name }?.text ?? "" }
    }

    static func run(
        _ device: IdentityDevice,
        _ arguments: String...
    ) async throws -> (status: Int32, output: String) {
        let process = try ChildProcess(
            ChildProcess.built("shared-device"),
            ["provider", "check", "--bus", device.bus.address] + arguments
        )
        let status = await process.exitStatus()
        return (status, process.lines.joined(separator: "\n") + process.errorText)
    }

    static func report(_ device: IdentityDevice) async throws -> (status: Int32, report: Report) {
        let (status, output) = try await Self.run(device, "--json")
        return (status, try JSONDecoder().decode(Report.self, from: Data(output.utf8)))
    }

    @Test("each step of the check passes with a correct provider, and no session ends")
    func works() async throws {
        let device = try await IdentityDevice(fault: "check")
        let (status, output) = try await Self.run(device)
        #expect(status == 0, "\(output)")
        let lines = output.split(separator: "\n")
        #expect(lines.count == 9 && lines.allSatisfy { $0.hasPrefix("✓ ") }, "\(output)")
        // The check tries the page that ends sessions, and leaves no trace that would end one.
        let again = try await Self.report(device)
        #expect(again.status == 0 && again.report.works && again.report.outcome("endSession") == "works")
        #expect(again.report.text("endSession").contains("not tried"), "\(again.report.text("endSession"))")
        #expect(try await !device.test.page("ended").contains("end-session"))
        let none = try await Self.report(IdentityDevice(fault: "no-end-session-page"))
        #expect(none.status == 0 && none.report.outcome("endSession") == "unknown")
        #expect(none.report.text("endSession").contains("status 404"), "\(none.report.text("endSession"))")
    }

    @Test("a wrong secret is reported by the steps that use it, with the remedy")
    func wrongSecret() async throws {
        let (status, report) = try await Self.report(IdentityDevice(fault: "check-secret", secret: "wrong"))
        #expect(status == 1 && !report.works)
        for step in ["client", "refresh", "revocation"] { #expect(report.outcome(step) == "fails", "\(step)") }
        for step in ["tls", "discovery", "keys", "redirect"] { #expect(report.outcome(step) == "works", "\(step)") }
        #expect(report.text("client").contains("oidc-client-secret"))
    }

    @Test("a failing step is named with its remedy, and steps that need it are not tried")
    func later() async throws {
        let events = try await stream("signals-refuse.provider-check")
        for (fault, more, step, remedy) in [
            ("revoke-denied", "", "revocation", "give the client a secret"),
            ("signals-refuse.provider-check", events, "sharedSignals", "shared-signals-token"),
        ] {
            let report = try await Self.report(IdentityDevice(fault: fault, more: more)).report
            #expect(!report.works && report.outcome(step) == "fails" && report.outcome("refresh") == "works")
            #expect(report.text(step).contains(remedy), "\(report.text(step))")
        }
        let faulty = try await FaultyProvider.shared.value
        let untrusted = try await Self.report(IdentityDevice(issuer: faulty.issuer("none")))
        #expect(untrusted.status == 1 && untrusted.report.outcome("tls") == "fails")
        #expect(untrusted.report.text("tls").contains("oidcTrustAnchors"))
        #expect(untrusted.report.outcome("client") == "unknown")
        let other = try await Self.report(IdentityDevice(fault: "discovery-issuer-mismatch"))
        #expect(other.report.outcome("tls") == "works" && other.report.outcome("discovery") == "fails")
        #expect(other.report.text("discovery").contains("to the last slash"))
    }

    @Test("the check reports if the device can receive logouts and the provider sends any")
    func logouts() async throws {
        func step(_ fault: String, _ address: String) async throws -> (outcome: String?, text: String) {
            let device = try await IdentityDevice(fault: fault, more: #", "backChannelLogout": "\#(address)""#)
            let report = try await Self.report(device).report
            return (report.outcome("backChannelLogout"), report.text("backChannelLogout"))
        }
        let address = "127.0.0.1:\(try freePort())"
        for (fault, address, outcome, text) in [
            ("backchannel-none.check", address, "works", address),
            ("check.logouts", "127.0.0.1:\(try freePort())", "unknown", "does not say"),
            ("backchannel-unsupported", "127.0.0.1:\(try freePort())", "fails", "leave backChannelLogout out"),
            ("backchannel-none.deaf", "/nowhere/logout.socket", "fails", "shared-device-identity.socket"),
        ] {
            let result = try await step(fault, address)
            #expect(result.outcome == outcome && result.text.contains(text), "\(result.text)")
            #expect(outcome != "works" || result.text.contains("not tried"), "\(result.text)")
        }
        let directory = try TemporaryDirectory("check-logouts")
        let passed = directory.path + "/logout.socket"
        let (fault, key) = ("backchannel-none.passed-check", #", "backChannelLogout": "\#(address)""#)
        let elsewhere = try await Self.report(IdentityDevice(fault: fault, more: key, passed: passed)).report
        let text = elsewhere.text("backChannelLogout")
        #expect(text.contains("listens at \(passed)") && text.contains("not at \(address)"), "\(text)")
    }
}

@Suite(
    "With glewlwyd, an independent provider",
    .serialized,
    .enabled(
        if: access(Glewlwyd.program, X_OK) == 0,
        "glewlwyd is not installed: apt-get install --no-install-recommends glewlwyd"
    )
)
struct GlewlwydProcessTests {
    @Test("the check recognises a registered redirect and a wrong secret")
    func check() async throws {
        let glewlwyd = try await Glewlwyd()
        let ports = #", "oidcLoopbackPorts": [8976]"#
        let right = try await outcomes(glewlwyd, secret: "device-secret-7", more: ports)
        let working = ["redirect", "client", "deviceCode", "refresh", "revocation"]
        #expect(working.allSatisfy { right[$0] == "works" } && right["tls"] == "unknown", "\(right)")
        let wrong = try await outcomes(glewlwyd, secret: "wrong", more: #", "oidcLoopbackPorts": [8977]"#)
        #expect(["redirect", "client", "revocation"].allSatisfy { wrong[$0] == "fails" }, "\(wrong)")
    }

    private func outcomes(_ glewlwyd: Glewlwyd, secret: String, more: String) async throws -> [String: String] {
        let device = try await IdentityDevice(issuer: glewlwyd.issuer.text, secret: secret, more: more)
        let steps = try await ProviderCheckTests.report(device).report.steps
        return Dictionary(steps.map { ($0.name, $0.outcome) }) { $1 }
    }
}
