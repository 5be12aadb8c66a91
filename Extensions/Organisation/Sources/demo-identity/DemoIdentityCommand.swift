import ArgumentParser
import Basics
import DemoStage
import ExampleSupport
import Foundation
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
@_spi(Extensions) import SharedDeviceTestKit

@main
struct DemoIdentityCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "demo-identity",
        abstract:
            "Plays a day of a device whose people a real OpenID Connect provider knows: glewlwyd, on this machine.",
        discussion: """
            Ada signs in on the provider's page, works in three apps with tokens that a service checks by the provider's keys, and is signed out by the \
            provider's administrator; every app gives its receipt, and the next person is asked who she is. Then two people sign out while the provider \
            hangs, and when it is gone. Prints its progress on standard error, and on standard output receipts, times and the verdict. If it is \
            interrupted, it leaves nothing behind.
            Exit status: 0 if all of it holds; 1 if a claim does not, or a step failed; 69 if something is not installed; 130 after Ctrl-C.
            """
    )

    @Flag(help: "Show the browser, and let a person sign in by hand. Needs a display.")
    var show = false

    @Option(help: "The browser: chromium or firefox.")
    var browser = DemoBrowser.chromium

    @Flag(help: "Print times, receipts and claims as JSON.")
    var json = false

    @Flag(help: "Print the evidence of each claim, too.")
    var verbose = false

    func run() async throws {
        Interruption.handle(by: "demo-identity")
        if let reason = try await IdentityStage.reasonToLeaveOut(browser) {
            Console.warn("demo-identity: \(reason)")
            throw ExitCode(EX_UNAVAILABLE)
        }
        let start = MonotonicClock.nanoseconds
        let progress = ProgressLine("demo-identity")
        let say = { (step: String) in
            let tenths = (MonotonicClock.nanoseconds - start) / 100_000_000
            progress.show("\(tenths / 10).\(tenths % 10) s  \(step)")
        }
        defer { progress.clear() }
        say("glewlwyd, a broker and three apps start")
        let stage = try await IdentityStage(browser, isShown: show)
        let scenario = IdentityScenario(stage, showsBrowser: show, progress: say)
        var failure: String?
        do { try await scenario.play() } catch { failure = "\(error)" }
        progress.clear()
        let report = IdentityReport(
            receipts: scenario.receipts,
            figures: scenario.figures,
            proof: scenario.proof,
            failure: failure
        )
        Console.write(
            json
                ? try report.json
                : report.text(withEvidence: verbose, inColor: TerminalOutput.showsColour(STDOUT_FILENO))
        )
        guard report.holds else {
            if verbose || json { Console.warn(stage.transcript) }
            throw ExitCode.failure
        }
    }
}

/// Measured durations, in milliseconds.
struct Figures: Sendable, Encodable {
    struct SignOut: Sendable, Encodable {
        /// From the call to the broker's response: the session is over.
        let session: Double
        /// From the call to the last app's receipt.
        let receipts: Double
    }

    /// From the submission of the provider's last page to the account in the app.
    var signIns: [Double] = []
    /// An app's first token of a session, which is requested from the provider.
    var firstTokens: [Double] = []
    /// A token from the broker's cache.
    var laterTokens: [Double] = []
    /// From the administrator's request at the provider to the last app's receipt.
    var remoteSignOut: Double?
    var signOutWhileProviderHangs: SignOut?
    var signOutWhileProviderIsGone: SignOut?

    /// For people, one line each.
    var lines: [String] {
        func text(_ value: Double?) -> String { value.map(Text.milliseconds) ?? "–" }
        func text(_ values: [Double]) -> String {
            guard let most = values.max() else { return "–" }
            return "\(text(values.sorted()[values.count / 2])) (median of \(values.count); at most \(text(most)))"
        }
        func text(_ signOut: SignOut?) -> String {
            "session over after \(text(signOut?.session)), all receipts after \(text(signOut?.receipts))"
        }
        return [
            "sign-in, from the provider's last page to the account: \(text(signIns))",
            "an app's first token, renewed at the provider: \(text(firstTokens)); from the broker: \(text(laterTokens))",
            "sign-out by the provider's administrator, until the last receipt: \(text(remoteSignOut))",
            "sign-out while the provider hangs: \(text(signOutWhileProviderHangs))",
            "sign-out while the provider is gone: \(text(signOutWhileProviderIsGone))",
        ]
    }
}

struct IdentityReport: Sendable {
    let receipts: [Receipts]
    let figures: Figures
    let proof: Proof
    let failure: String?

    var holds: Bool { failure == nil && proof.holds }

    func text(withEvidence: Bool, inColor: Bool) -> String {
        let failing = proof.claims.filter { !$0.holds }.map { "FAILS: \($0.text)" }
        let lines = Receipts.summary(receipts) + figures.lines + (withEvidence ? [proof.text] : failing)
        let verdict = proof.verdict(
            failure,
            proved: "every app cleaned up, and the next person was asked who she is",
            notProved: "not every claim holds",
            inColor: inColor
        )
        return (lines + [proof.summary, verdict]).joined(separator: "\n") + "\n"
    }

    var json: String {
        get throws {
            let content = Content(
                milliseconds: figures,
                receipts: receipts.map(\.report),
                claims: proof.claims,
                holds: holds,
                failure: failure
            )
            let encoder = JSONEncoder()
            encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
            return String(decoding: try encoder.encode(content), as: UTF8.self) + "\n"
        }
    }

    /// The property names are the JSON's keys.
    private struct Content: Encodable {
        let milliseconds: Figures
        let receipts: [CleanupReport]
        let claims: [Proof.Claim]
        let holds: Bool
        let failure: String?
    }
}

extension DemoBrowser: ExpressibleByArgument {}
