import DBusTransport
package import DeviceConfiguration
import FoundationEssentials
package import SharedDevice
import Synchronization

/// Takes part in shared device mode in the place of a program that knows nothing of it. After a session: stops the program, deletes what it kept,
/// looks that nothing is left and the program has not come back, gives the receipt, and lets the program run again.
///
/// All of it is one step of the cleanup, and each part may be done again: after a crash at any point the whole is done once more. The record of
/// what is owed is ``SharedDeviceApplication``'s, and the broker counts the app from each sign-in on.
package final class Adapter: Sendable {
    /// A place at which tests act.
    package enum Checkpoint: Sendable, Equatable {
        case stopping
        case stopped
        case deleting(DeclaredPath.Checkpoint)
        case deleted
        /// Right before the receipt.
        case verified
    }

    private let program: any ProgramControl
    private let start: AppCleanup.Start?
    private let paths: [String]
    private let user: UInt32
    private let record: SessionRecord?
    private let log: @Sendable (String) -> Void
    private let shown: @Sendable (AccountState) -> Void
    private let checkpoint: @Sendable (Checkpoint) -> Void
    /// What was shown last. While somebody's data is owed or deleted, it is hidden.
    private let last = Locked<AccountState?>(nil)

    /// How often a cleanup begins anew because the program came back meanwhile.
    private static let rounds = 3

    /// - Parameters:
    ///   - start: when the program runs; `nil` means that the adapter never starts it.
    ///   - stateDirectory: the directory of the adapter's record of the app, where it keeps what was above the paths when the session began. With `nil`
    ///     the adapter does not notice that the paths lead elsewhere since.
    ///   - log: takes a line for the administrator.
    ///   - shown: is told each state of the device: that somebody is signed in before the program is started for that, other states afterwards.
    package init(
        program: any ProgramControl,
        start: AppCleanup.Start?,
        paths: [String],
        user: UInt32,
        stateDirectory: String? = nil,
        log: @escaping @Sendable (String) -> Void,
        shown: @escaping @Sendable (AccountState) -> Void = { _ in },
        checkpoint: @escaping @Sendable (Checkpoint) -> Void = { _ in }
    ) {
        self.program = program
        self.start = start
        self.log = log
        self.shown = shown
        self.checkpoint = checkpoint
        self.paths = paths
        self.user = user
        record = stateDirectory.map { SessionRecord(stateDirectory: $0, paths: paths) }
    }

    /// Follows the account of the device until the task is cancelled. A unit then runs on; an owned command is for its owner to end.
    package func follow(_ application: SharedDeviceApplication) async throws(SharedDeviceError) {
        let cleanup = CleanupCoordinator()
        try cleanup.register("adapter") { _ in try await self.cleanUp() }
        await application.follow(cleanup) { try await self.show($0) }
    }

    /// Lets the program start once more after it has ended by itself, if it may run now: not while anything is owed, nor before the broker has
    /// said who is signed in.
    ///
    /// - Parameter allow: called before the start.
    package func startAgain(_ allow: @Sendable () -> Void) async throws(AdapterFailure) {
        let isSignedIn: Bool
        switch last.withLock({ $0 }) {
        case .open: isSignedIn = true
        case .nobody: isSignedIn = false
        case .hidden, nil: return
        }
        guard let start, start.runs(isSignedIn: isSignedIn) else { return }
        allow()
        try await program.start()
    }

    /// For a manifest that is not in force any more: what it names is stopped and deleted, whoever is signed in, because no later cleanup does.
    /// A program that does not run, or that there never was, needs no end.
    package func retire() async throws(AdapterFailure) {
        if try await program.isStopped() {
            _ = try await delete()
            // Not started meanwhile.
            if try await program.isStopped() { return }
        }
        _ = try await cleanUp(endsSession: false)
    }

    /// Stops, deletes and looks.
    ///
    /// - Parameter endsSession: whether nothing of the session is left then.
    /// - Returns: what was done, for the report.
    package func cleanUp(endsSession: Bool = true) async throws(AdapterFailure) -> String {
        var removed = UserDataDirectory.Removed()
        for _ in 0..<Self.rounds {
            checkpoint(.stopping)
            try await program.stop()
            checkpoint(.stopped)
            removed.add(try await delete())
            checkpoint(.deleted)
            // Somebody may have started it meanwhile: what it has stored has to go as well.
            guard try await program.isStopped() else { continue }
            checkpoint(.verified)
            if endsSession { await record { record throws(AdapterFailure) in try record.end() } }
            log("stopped \(program.name) and deleted \(removed)")
            return "\(removed)"
        }
        throw AdapterFailure(
            "keep",
            "\(program.name) stopped",
            "somebody starts it again while its data is deleted",
            remedy: "Leave its start to the adapter (\"start\"), and disable whatever else starts it"
        )
    }

    /// Deletes at all paths but those that lead elsewhere since the session began.
    ///
    /// - Throws: ``AdapterFailure``: the first of what could not be deleted.
    private func delete() async throws(AdapterFailure) -> UserDataDirectory.Removed {
        let record = record
        let moved = try await onSystemThread { () throws(AdapterFailure) in try record?.moved() ?? [] }
        let kept = moved.map { Array($0.path.utf8) }
        let checkpoint = checkpoint
        let deletion = Deletion(paths: paths.filter { !kept.contains(Array($0.utf8)) }, user: user) {
            checkpoint(.deleting($0))
        }
        let removed = try await deletion.run()
        if let first = moved.first { throw first.failure }
        return removed
    }

    /// A record that cannot be written is told, and keeps nobody from working.
    private func record(_ body: @escaping @Sendable (SessionRecord) throws(AdapterFailure) -> Void) async {
        guard let record else { return }
        do throws(AdapterFailure) {
            try await onSystemThread { () throws(AdapterFailure) in try body(record) }
        } catch {
            log("\(error)")
        }
    }

    private func show(_ state: AccountState) async throws(AdapterFailure) {
        last.withLock { $0 = state }
        switch state {
        case .open:
            // Told first: a program that ends at once must not find that nobody is signed in.
            shown(state)
            await record { record throws(AdapterFailure) in try record.begin() }
            return try await run(isSignedIn: true)
        case .nobody:
            // What an administrator has waived is not this session's any more.
            await record { record throws(AdapterFailure) in try record.end() }
            try await run(isSignedIn: false)
        case .hidden(.cleanupFailed(let failure)): log("\(failure)")
        case .hidden(.unknown(let error)):
            // Without a broker nobody signs in or out: a program that runs is not ended for that.
            log("\(error)")
        case .hidden(.appFailed(let reason)): log(reason)
        // The cleanup's first part stops the program.
        case .hidden: break
        }
        shown(state)
    }

    private func run(isSignedIn: Bool) async throws(AdapterFailure) {
        guard let start else { return }
        if start.runs(isSignedIn: isSignedIn) { try await program.start() } else { try await program.stop() }
    }
}
