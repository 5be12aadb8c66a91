import Basics
import DBus
package import DeviceConfiguration
import FoundationEssentials
@_spi(Extensions) package import SharedDevice
import Synchronization

/// Takes part in shared device mode for a program that does not support it. After a session it stops the program,
/// deletes its data, and verifies that no data is left and the program has not restarted. Then it sends the receipt and
/// lets the program run again.
///
/// All of it is one step of the cleanup, and each part is idempotent: after a crash the whole step runs again.
/// ``SharedDeviceApplication`` keeps the record of pending cleanups.
package final class Adapter: Sendable {
    /// A point at which tests intervene.
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
    /// The last state shown. It is hidden while a cleanup is pending or running.
    private let last = Locked<AccountState?>(nil)

    /// The number of attempts to clean up a program that restarts during the cleanup.
    private static let rounds = 3

    /// - Parameters:
    ///   - start: when the program runs; with `nil` the adapter never starts it.
    ///   - stateDirectory: the directory of the adapter's record of the app, for ``SessionPlaces``. With `nil` it does
    ///     not detect that a path leads elsewhere by the end of the session.
    ///   - log: takes a line for the administrator.
    ///   - shown: receives each state of the device: a sign-in before the program is started for it, other states
    ///     afterwards.
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
        self.paths = paths
        self.user = user
        (self.log, self.shown, self.checkpoint) = (log, shown, checkpoint)
        record = stateDirectory.map { SessionRecord(stateDirectory: $0, paths: paths) }
    }

    /// An adapter of the app that a manifest describes. Without `program`, it is that of the manifest.
    package convenience init(
        _ cleanup: AppCleanup,
        program: (any ProgramControl)? = nil,
        start: AppCleanup.Start? = nil,
        stateDirectory: String,
        log: @escaping @Sendable (String) -> Void,
        checkpoint: @escaping @Sendable (Checkpoint) -> Void = { _ in }
    ) {
        self.init(
            program: program ?? cleanup.program(mark: stateDirectory),
            start: start,
            paths: cleanup.delete,
            user: cleanup.user.number,
            stateDirectory: stateDirectory,
            log: log,
            checkpoint: checkpoint
        )
    }

    /// Follows the device's account until the task is cancelled. A unit then keeps running; the owner of an owned
    /// command must stop it.
    ///
    /// - Parameter cleansMissedSessions: whether to clean up after sessions of which the app was not told, too, and
    ///   report nothing: for an app that the broker counts only from its request for the account on, as it has no
    ///   manifest.
    package func follow(
        _ application: SharedDeviceApplication,
        cleansMissedSessions: Bool = false
    ) async throws(SharedDeviceError) {
        let cleanup = CleanupCoordinator()
        try cleanup.register("adapter") { _ in try await self.cleanUp() }
        let clean: @Sendable () async throws -> Void = { _ = try await self.cleanUp() }
        await application.follow(cleanup, afterMissedSession: cleansMissedSessions ? clean : nil, show)
    }

    /// Restarts a program that exited by itself, unless a cleanup is pending or the account is not known yet. Calls
    /// `allow` before the start.
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

    /// Stops and deletes the targets of an obsolete manifest, even during a session, because no later cleanup does.
    /// Does not stop a program that is not running or never existed.
    package func retire() async throws(AdapterFailure) {
        if try await program.isStopped() {
            _ = try await delete()
            // The program may have been started during the deletion.
            if try await program.isStopped() { return }
        }
        _ = try await cleanUp(endsSession: false)
    }

    /// Stops the program, deletes its data and verifies the result. Returns a summary for the report.
    /// - Parameter endsSession: whether no data of the session is left afterwards.
    package func cleanUp(endsSession: Bool = true) async throws(AdapterFailure) -> String {
        var removed = UserDataDirectory.Removed()
        for _ in 0..<Self.rounds {
            checkpoint(.stopping)
            try await program.stop()
            checkpoint(.stopped)
            removed.add(try await delete())
            checkpoint(.deleted)
            // A program that was started during the deletion may have stored data, so the cleanup begins again.
            guard try await program.isStopped() else { continue }
            checkpoint(.verified)
            if endsSession { await record { record throws(AdapterFailure) in try record.end() } }
            log("stopped \(program.name) and deleted \(removed)")
            return "\(removed)"
        }
        throw AdapterFailure(
            "keep \(program.name) stopped: another program starts it again while its data is deleted",
            remedy: "Leave its start to the adapter (\"start\"), and disable whatever else starts it"
        )
    }

    /// Deletes at all paths, but skips each path that leads elsewhere than at the beginning of the session. Throws the
    /// first failure.
    private func delete() async throws(AdapterFailure) -> UserDataDirectory.Removed {
        let record = record
        let moved = try await onSystemThread { () throws(AdapterFailure) in try record?.moved() ?? [] }
        let kept = moved.map { Array($0.path.utf8) }
        var deletion = Deletion(paths: paths.filter { !kept.contains(Array($0.utf8)) }, user: user)
        deletion.checkpoint = { [checkpoint] in checkpoint(.deleting($0)) }
        let removed = try await deletion.run()
        if let first = moved.first { throw first.failure }
        return removed
    }

    /// Logs a failure to write the record, because that must not keep users from working.
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
            // Shown before the start: a program that exits at once must find the user signed in.
            shown(state)
            await record { record throws(AdapterFailure) in try record.begin() }
            return try await run(isSignedIn: true)
        case .nobody:
            // A cleanup that an administrator waived no longer concerns this session.
            await record { record throws(AdapterFailure) in try record.end() }
            try await run(isSignedIn: false)
        case .hidden(.cleanupFailed(let failure)): log("\(failure)")
        // Without a broker no user signs in or out, so a running program is left running.
        case .hidden(.unknown(let error)): log("\(error)")
        case .hidden(.appFailed(let reason)): log(reason)
        // The cleanup itself stops the program.
        case .hidden: break
        }
        shown(state)
    }

    private func run(isSignedIn: Bool) async throws(AdapterFailure) {
        guard let start else { return }
        if start.runs(isSignedIn: isSignedIn) { try await program.start() } else { try await program.stop() }
    }
}
