import AppAdapters
import ArgumentParser
import Basics
import CommandParts
import DBus
import DeviceConfiguration
import Glibc
import SharedDevice
import SharedDeviceTestKit
import Synchronization

struct RunCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "run",
        abstract: "Runs a program that does not support shared device mode, and cleans up after it.",
        discussion: """
            The program finds its home and its data directories below the directory of --data. After each session it is ended with all of its \
            processes, that directory is emptied, and the broker gets the receipt; then it is started again. It runs only while nothing is owed: \
            what a crash has left is deleted before the program starts. A program that ends by itself is not started again; the command then \
            waits until its user has signed out, and ends.
            Exit status: the program's; 64 wrong usage, or a directory that is not the app's; 126 the program may not be run; 127 there is none.
            """
    )

    @Option(help: ArgumentHelp("The app's identifier, such as org.example.browser.", valueName: "id"))
    var app: String

    @Option(
        help: ArgumentHelp(
            "The directory that is emptied after each session. It is made if it is missing.",
            valueName: "dir"
        )
    )
    var data: String

    @Flag(help: "Accepts a directory that is not empty and that the app has never used. Its content is deleted, too.")
    var adopt = false

    @Option(help: ArgumentHelp("A preset for a known program: \(AdapterPreset.names).", valueName: "name"))
    var preset: String?

    @Option(
        help: ArgumentHelp(
            "When the program runs: nobody (while no account is signed in), signed-in, always.",
            valueName: "when"
        )
    )
    var start: String = AppCleanup.Start.always.rawValue

    @OptionGroup var bus: BusOptions

    @Argument(parsing: .captureForPassthrough, help: "The program and its arguments, after --.")
    var command: [String]

    func run() throws { try OtherThreads.run { [self] in try await follow() } }

    private func follow() async throws {
        let end = try EndSignals()
        let identifier = app
        let application = SharedDeviceApplication(identifier: identifier, bus: bus.bus)
        let plan: RunPlan
        let lock: RunLock
        do {
            plan = try RunPlan(self, keeping: application.stateDirectory)
            switch try RunLock.take(in: application.stateDirectory) {
            case .taken(let taken): lock = taken
            case .other(let process): return try emit(Self.runsAlready(identifier, process))
            }
            // Before the program can store data: after a crash the directory is known to be the app's.
            try plan.directories.add(plan.data)
        } catch {
            throw reported(error)
        }
        let (statuses, continuation) = AsyncStream.makeStream(of: Int32.self)
        let progress = RunProgress { continuation.yield($0) }
        let program = OwnedCommand(plan.settings) { status, time in
            if !progress.ended(status) { Self.say(Self.hasEnded(plan.name, status, after: time)) }
        }
        let adapter = Adapter(
            program: program,
            start: plan.start,
            paths: [plan.data],
            user: geteuid(),
            stateDirectory: application.stateDirectory,
            log: { Self.say($0) },
            shown: { progress.shown($0) }
        )
        let again = lock.onRequest {
            Task {
                do throws(AdapterFailure) {
                    try await adapter.startAgain {
                        program.allowStart()
                        progress.startsAgain()
                    }
                } catch {
                    Self.say("\(error)")
                    _ = progress.ended(EX_UNAVAILABLE)
                }
            }
        }
        let following = Task { try await adapter.follow(application, cleansMissedSessions: true) }
        let ending = Task {
            await end.first()
            continuation.yield(0)
        }
        let status = await statuses.first { _ in true } ?? 0
        following.cancel()
        ending.cancel()
        _ = await following.result
        withExtendedLifetime((again, lock)) {}
        do throws(AdapterFailure) {
            try await program.stop()
        } catch {
            throw CommandFailure(EX_UNAVAILABLE, error.description)
        }
        if status != 0 { throw ExitCode(status) }
    }

    private func reported(_ error: any Error) -> any Error {
        Self.say("\(error)")
        return ExitCode((error as? CommandFailure)?.exitStatus ?? EX_USAGE)
    }

    /// - Parameter process: The process that was asked; `nil` if none could be asked.
    private static func runsAlready(_ app: String, _ process: Int32?) -> String {
        guard let process else {
            return "\(app) runs already, in a process that cannot be asked to start its program again"
        }
        return "\(app) runs already (process \(process)), and was asked to start its program again, if it has ended; "
            + "other arguments take effect after process \(process) has ended"
    }

    /// A program that ends at once often failed to start, so the message has its status.
    private static func hasEnded(_ name: String, _ status: Int32, after time: Duration) -> String {
        let tenths = Int(time / .milliseconds(100))
        let runs = time < .seconds(10) ? " after \(tenths / 10).\(tenths % 10) s" : ""
        return "\(name) has ended\(runs) with status \(status); its data is deleted when its user has signed out"
    }

    static func say(_ line: String) { warn("run: \(line)") }
}

/// Decides when the command is over: its program has ended by itself, and all data of users is deleted.
private final class RunProgress: Sendable {
    private struct State {
        var status: Int32?
        var isClean = false
    }

    private let state = Locked(State())
    private let over: @Sendable (Int32) -> Void

    init(over: @escaping @Sendable (Int32) -> Void) { self.over = over }

    /// - Returns: Whether the command is over.
    func ended(_ status: Int32) -> Bool { change { $0.status = status } }

    func shown(_ account: AccountState) { _ = change { $0.isClean = account == .nobody } }

    func startsAgain() { _ = change { $0.status = nil } }

    private func change(_ body: @Sendable (inout State) -> Void) -> Bool {
        let status = state.withLock { state in
            body(&state)
            return state.isClean ? state.status : nil
        }
        if let status { over(status) }
        return status != nil
    }
}
