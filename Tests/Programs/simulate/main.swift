// Plays schedules of a simulated device in this process. SCHEDULES and SEED select the schedules, and JOBS sets the
// number of threads. SCHEDULES=1 prints what happens in the schedule. MUTANT applies one deliberate mistake.
// MUTANTS=yes says how soon each mistake is found, from its example seed or from SEED on. DIGEST=yes prints a hash of
// all that happens, to compare before and after an optimisation of the simulation. Exits with 1 if a promise was broken
// or a mistake was not found.
import Basics
import Foundation
import Glibc

// `commit DIRECTORY` and `ledger DIRECTORY` are for tests that kill this process.
switch (CommandLine.arguments.dropFirst().first, CommandLine.arguments.last) {
case ("commit", let directory?): try commitForEver(in: directory)
case ("ledger", let directory?): try keepLedger(in: directory)
default: break
}

let environment = ProcessInfo.processInfo.environment
func number(_ name: String) -> Int? { environment[name].flatMap { Int($0) } }

let schedules = number("SCHEDULES") ?? 1_000_000
let givenSeed = UInt64(environment["SEED"] ?? "")
let seed = givenSeed ?? 1
let jobs = number("JOBS") ?? ProcessInfo.processInfo.activeProcessorCount
let mutant = environment["MUTANT"].flatMap { Mutant(rawValue: $0) }
let isTerminal = isatty(STDERR_FILENO) == 1

func explain(_ outcome: Outcome) {
    let schedule = SimulatedSchedule(seed: outcome.seed)
    let shrunk = schedule.shrunk(mutant: mutant)
    print("seed \(outcome.seed): \(outcome.violation ?? "all holds")")
    print("it needs \(shrunk.stepCount) of \(schedule.stepCount) steps:")
    print(shrunk.text)
    print("what happens:")
    let again = shrunk.play(mutant: mutant) { print("    \($0)") }
    print(again.violation ?? "all holds")
    print("again: make simulate SCHEDULES=1 SEED=\(outcome.seed)")
}

func playOne() -> CInt {
    var lines: [String] = []
    let outcome = SimulatedSchedule(seed: seed).play(mutant: mutant) { lines.append($0) }
    if outcome.violation != nil {
        explain(outcome)
        return 1
    }
    print(lines.joined(separator: "\n"))
    print("seed \(seed): all holds")
    return 0
}

func playDigest() -> CInt {
    // FNV-1a. Swift's own hash differs between processes.
    var digest: UInt64 = 0xCBF2_9CE4_8422_2325
    func add(_ text: String) {
        for byte in text.utf8 { digest = (digest ^ UInt64(byte)) &* 0x100_0000_01B3 }
        digest = (digest ^ 0x0A) &* 0x100_0000_01B3
    }
    for index in 0..<schedules {
        let outcome = SimulatedSchedule(seed: seed &+ UInt64(index)).play(mutant: mutant, trace: add)
        add("\(outcome.seed): \(outcome.steps) steps, \(outcome.violation ?? "all holds")")
    }
    print("\(schedules) schedules from seed \(seed): \(String(digest, radix: 16))")
    return 0
}

func playMutants() -> CInt {
    var unseen = 0
    for mutant in Mutant.allCases {
        let seed = givenSeed ?? mutant.exampleSeed
        let result = Campaign(seed: seed, schedules: schedules, jobs: jobs, mutant: mutant).run()
        let name = mutant.rawValue.padding(toLength: 32, withPad: " ", startingAt: 0)
        if let failure = result.failures.first {
            print("\(name) found by seed \(failure.seed), after \(failure.seed - seed + 1) schedules: \(failure.kind)")
        } else {
            print("\(name) not found in \(schedules) schedules")
            unseen += 1
        }
    }
    print("\(Mutant.allCases.count) mistakes, \(unseen) unseen")
    return unseen == 0 ? 0 : 1
}

func playMany() -> CInt {
    let began = ContinuousClock.now
    var campaign = Campaign(seed: seed, schedules: schedules, jobs: jobs, mutant: mutant)
    if isTerminal {
        let schedules = schedules
        campaign.progress = { played in
            guard played.isMultiple(of: 1000) else { return }
            _ = writeAll("\r\(played) of \(schedules) schedules", to: STDERR_FILENO)
        }
    }
    let result = campaign.run()
    let seconds = max(0.001, (ContinuousClock.now - began) / .seconds(1))
    if isTerminal { print() }
    print(
        "\(result.played) schedules from seed \(seed), \(result.steps) steps in \(Int(seconds)) s, "
            + "\(Int(Double(result.played) / seconds)) schedules/s: \(result.failures.count) broke a promise"
    )
    guard let failure = result.failures.first else { return 0 }
    explain(failure)
    return 1
}

if environment["MUTANTS"] != nil { exit(playMutants()) }
if environment["DIGEST"] != nil { exit(playDigest()) }
exit(schedules == 1 ? playOne() : playMany())
