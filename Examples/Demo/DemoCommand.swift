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
struct DemoCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "demo",
        abstract: "Plays a global sign-out across real processes, and proves that every app cleaned up.",
        discussion: """
            Starts a private bus, the broker, three apps, and Chromium where it is installed. Prints its progress on \
            standard error, and on standard output when each app cleaned up, and the verdict. \
            If it is interrupted, it leaves nothing behind.
            Exit status: 0 if every claim holds; 1 if a claim does not hold, or a step failed; 130 after Ctrl-C.
            """
    )

    @Flag(help: "Keep the directory with all data, and print its path.")
    var keep = false

    @Flag(help: "Print timeline and proof as JSON.")
    var json = false

    @Flag(help: "Print the timelines, the apps' receipts and everything that was proved.")
    var verbose = false

    func run() async throws {
        Interruption.handle(by: "demo")
        let start = MonotonicClock.nanoseconds
        let progress = ProgressLine("demo")
        defer { progress.clear() }
        let stage = try await Stage(isKept: keep)
        let scenario = Scenario(stage) { step in
            let tenths = (MonotonicClock.nanoseconds - start) / 100_000_000
            progress.show("\(tenths / 10).\(tenths % 10) s  \(step)")
        }
        var failure: (any Error)?
        do {
            try await scenario.play()
        } catch {
            failure = error
        }
        progress.clear()
        let report = Report(
            timelines: scenario.timelines,
            receipts: scenario.receipts,
            proof: scenario.proof,
            failure: failure.map { "\($0)" },
            leftOut: stage.leftOut
        )
        let inColor = TerminalOutput.showsColour(STDOUT_FILENO)
        Console.write(
            json ? try report.json : verbose ? report.text(inColor: inColor) : report.summary(inColor: inColor)
        )
        if keep { Console.warn("all of it is in \(stage.directory)") }
        if failure != nil || !scenario.proof.holds {
            Console.warn(stage.transcript)
            throw ExitCode.failure
        }
    }
}
