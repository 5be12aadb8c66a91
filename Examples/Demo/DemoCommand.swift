import ArgumentParser
import ExampleSupport
import Foundation
import SharedDevice

@main
struct DemoCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "demo",
        abstract: "Plays a global sign-out across real processes, and proves that every app cleaned up.",
        discussion: """
            Starts a private bus, the broker and three apps. Prints its progress on standard error, and timelines, the apps' receipts \
            and what was proved on standard output.
            Exit status: 0 if all of it holds; 1 if something of the first user is left, or a step failed.
            """
    )

    @Flag(help: "Leave the directory with all data behind, and say where it is.")
    var keep = false

    @Flag(help: "Print timeline and proof as JSON.")
    var json = false

    func run() async throws {
        let stage = try await Stage(isKept: keep)
        let start = MonotonicClock.nanoseconds
        let scenario = Scenario(stage) { step in
            let seconds = Double((MonotonicClock.nanoseconds - start) / 1_000_000) / 1000
            Console.warn("[\(seconds) s] \(step)")
        }
        var failure: (any Error)?
        do {
            try await scenario.play()
        } catch {
            failure = error
        }
        let report = Report(
            timelines: scenario.timelines,
            receipts: scenario.receipts,
            proof: scenario.proof,
            failure: failure.map { "\($0)" }
        )
        Console.write(json ? try report.json : report.text)
        if keep { Console.warn("all of it is in \(stage.directory)") }
        if failure != nil || !scenario.proof.holds {
            Console.warn(stage.transcript)
            throw ExitCode.failure
        }
    }
}
