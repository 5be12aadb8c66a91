import Foundation
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import TestProviders
import Testing

/// The package that the demonstration lacks on this machine; `nil` if none. The program reports it too.
private let missing: String? = {
    for (program, package) in [(Glewlwyd.program, "glewlwyd"), ("/usr/bin/chromium", "chromium")]
    where access(program, X_OK) != 0 {
        return "\(package) is not installed: apt-get install --no-install-recommends \(package)"
    }
    let libraries = try? ChildProcess("/usr/bin/python3", ["-c", "import jwt, cryptography"])
    return libraries?.waitUntilExit() == 0 ? nil : "python3-jwt is not installed"
}()

@Suite(
    "The demonstration with a real provider",
    .serialized,
    .enabled(if: missing == nil, "\(missing ?? "")")
)
struct DemoIdentityTests {
    private struct Report: Decodable {
        struct Claim: Decodable { let holds: Bool, text: String }
        struct SignOut: Decodable { let session: Double, receipts: Double }
        struct Figures: Decodable {
            let signIns: [Double], firstTokens: [Double], laterTokens: [Double], remoteSignOut: Double
            let signOutWhileProviderHangs: SignOut, signOutWhileProviderIsGone: SignOut
        }
        struct Round: Decodable {
            struct App: Decodable { let progress: String }
            let apps: [App]
        }
        let claims: [Claim], milliseconds: Figures, receipts: [Round], holds: Bool
    }

    /// Runs the demonstration, in which each claim holds, also those with the words.
    private func report(_ arguments: String..., claims words: [String]) async throws -> Report {
        let demo = try ChildProcess(ChildProcess.built("demo-identity"), ["--json"] + arguments)
        #expect(await demo.exitStatus() == 0, "\(demo.errorText)")
        let report = try JSONDecoder().decode(Report.self, from: Data(demo.lines.joined().utf8))
        #expect(report.holds && report.claims.allSatisfy(\.holds))
        for word in words { #expect(report.claims.contains { $0.text.contains(word) }, "\(word)") }
        return report
    }

    @Test("the demonstration with glewlwyd signs users in and out, with all receipts")
    func whole() async throws {
        let report = try await report(claims: [
            "asked the next person who she is", "took the tokens of all three apps", "not a byte of Ada",
        ])
        #expect(report.receipts.count == 3)
        #expect(report.receipts.allSatisfy { $0.apps.count == 3 && $0.apps.allSatisfy { $0.progress == "finished" } })
        let figures = report.milliseconds
        #expect([figures.signIns, figures.firstTokens, figures.laterTokens].map(\.count) == [3, 6, 57])
        // A sign-out does not wait for a hanging provider, which would take seconds.
        for signOut in [figures.signOutWhileProviderHangs, figures.signOutWhileProviderIsGone] {
            #expect(signOut.session > 0 && signOut.session < 5000 && signOut.receipts > 0)
        }
    }

    @Test(
        "Firefox asks the next user to sign in and has no cookie of the previous one",
        .enabled(if: access("/usr/bin/firefox-esr", X_OK) == 0, "firefox-esr is not installed")
    )
    func firefox() async throws {
        let words = ["asked the next person who she is", "the browser's profile is deleted"]
        _ = try await report("--browser", "firefox", claims: words)
    }

    @Test(
        "an interrupt is reported and leaves no directory and no process",
        arguments: ["Ada signs in", "the provider stands still"]
    )
    func interrupted(_ moment: String) async throws {
        struct Ended: Error { let status: Int32, text: String }
        let directory = try TemporaryDirectory("t")
        let temporary = "\(directory.path)/t"
        try FileManager.default.createDirectory(atPath: temporary, withIntermediateDirectories: true)
        let demo = try ChildProcess(ChildProcess.built("demo-identity"), environment: ["TMPDIR": temporary])
        try await onThread {
            while !demo.errorText.contains(moment) {
                guard demo.isRunning else { throw Ended(status: demo.waitUntilExit(), text: demo.errorText) }
                usleep(500)
            }
            // During a sign-in the browser must be open first.
            func hasBrowser() throws -> Bool {
                try !processes(with: "\(temporary)/", "--user-data-dir", inVariables: true).isEmpty
            }
            while moment == "Ada signs in", demo.isRunning, try !hasBrowser() { usleep(500) }
            demo.send(SIGINT)
        }
        #expect(await demo.exitStatus() == 130)
        #expect(demo.errorText.hasSuffix("demo-identity: interrupted") && demo.lines.isEmpty, "\(demo.errorText)")
        #expect(try FileManager.default.contentsOfDirectory(atPath: temporary) == [])
        #expect(try processes(with: temporary, inVariables: true) == [])
    }
}
