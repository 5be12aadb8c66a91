import AppAdapters
import Basics
import DBus
import DeviceConfiguration
import Glibc
@_spi(Extensions) import SharedDevice
import Synchronization

/// Runs the adapter that an app's manifest describes, and restarts it when the manifest changes.
struct AdapterService {
    let app: String
    let bus: Bus
    let stateDirectory: String?

    /// Follows the manifests until the task is cancelled.
    func follow(_ updates: AsyncStream<AppManifests>) async {
        var present: (cleanup: AppCleanup, busName: String?)?
        var running: Task<Void, Never>?
        var told: [ManagedConfigurationError] = []
        for await manifests in updates {
            let problems = manifests.problems(of: app)
            // The update may concern another app.
            if problems.told != told { for problem in problems.told { log("\(problem)") } }
            told = problems.told
            let manifest = manifests.manifests.first { $0.identifier == app }
            let cleanup = manifest?.adapter
            guard running == nil || cleanup != present?.cleanup || manifest?.busName != present?.busName else {
                continue
            }
            running?.cancel()
            _ = await running?.value
            if cleanup == nil {
                log(
                    problems.isRefused
                        ? "the manifest of \(app) is refused (above); waiting for a valid one"
                        : "no manifest of \(app) has the key “cleanup” for an adapter; waiting for one"
                )
            }
            present = cleanup.map { ($0, manifest?.busName) }
            // A manifest that is unreadable at the start is no order to delete the data that it may still name.
            guard manifest != nil || running != nil || manifests.problems.isEmpty else { continue }
            running = Task { [busName = manifest?.busName] in await self.serve(cleanup, busName) }
        }
        running?.cancel()
        _ = await running?.value
    }

    /// - Parameter cleanup: the cleanup that the manifest names; with `nil` only cleanups of earlier manifests remain
    ///   to be done.
    private func serve(_ cleanup: AppCleanup?, _ busName: String?) async {
        let application = SharedDeviceApplication(
            identifier: app,
            bus: bus,
            busName: busName,
            stateDirectory: stateDirectory
        )
        let usable = cleanup.flatMap { isUsable($0, application) ? $0 : nil }
        guard await settle(usable, application.stateDirectory), let cleanup = usable else { return }
        await run(cleanup, application)
    }

    // MARK: Earlier manifests

    /// The pauses between two attempts. The first is short, because a person may be fixing the cause right now.
    private static let (shortestPause, longestPause): (Duration, Duration) = (.milliseconds(250), .seconds(10))

    /// Stops and deletes the targets of earlier manifests and records those of this one. Retries until it succeeds, and
    /// returns false if the task is cancelled. Until then the app sends no receipt, and the broker is told why.
    private func settle(_ cleanup: AppCleanup?, _ directory: String) async -> Bool {
        let named = NamedCleanups(stateDirectory: directory)
        let reason = Reason()
        var refusal: Task<Void, Never>?
        var isSettled = false
        var backoff = Backoff(first: Self.shortestPause, longest: Self.longestPause)
        while !isSettled, !Task.isCancelled {
            do throws(AdapterFailure) {
                isSettled = try await retire(named, for: cleanup, directory)
            } catch {
                let text = "\(error). Until then there is no receipt; to go on without, remove \(named.path)"
                log(text)
                reason.set(text)
                // Without a manifest the broker expects no receipt.
                if refusal == nil, cleanup != nil { refusal = Task { await refuse(reason, directory) } }
                try? await Task.sleep(for: backoff.next())
            }
        }
        // Only one follower at a time may use the app's record.
        refusal?.cancel()
        _ = await refusal?.value
        return isSettled
    }

    /// Stops and deletes the targets of changed manifests, because no later cleanup does. Saves this manifest's targets
    /// before they are used: it may change while no adapter runs. Returns false if the task was cancelled.
    private func retire(
        _ named: NamedCleanups,
        for cleanup: AppCleanup?,
        _ directory: String
    ) async throws(AdapterFailure) -> Bool {
        while !Task.isCancelled {
            let all = try await onSystemThread { () throws(AdapterFailure) in try named.read() }
            guard let old = all.first(where: { old in cleanup.map { !$0.includes(old) } ?? true }) else {
                let present = cleanup.map { [$0] } ?? []
                try await onSystemThread { () throws(AdapterFailure) in try named.write(present) }
                return true
            }
            guard mayRun(old) else {
                let failure =
                    "delete what an earlier manifest of \(app) named: "
                    + "it belongs to user \(old.user.number), and the adapter runs as user \(geteuid())"
                throw AdapterFailure(failure, remedy: "Run the adapter as that user, or as root")
            }
            log(
                "the manifest of \(app) has changed; the adapter stops its earlier program and deletes its earlier paths"
            )
            try await Adapter(old, stateDirectory: directory, log: log).retire()
            // Reads again: an administrator may have removed the file to skip this cleanup.
            try await onSystemThread { () throws(AdapterFailure) in
                try named.write(try named.read().filter { $0 != old })
            }
        }
        return false
    }

    /// The reason for the missing receipt, as text for people.
    private final class Reason: Sendable {
        private let text = Locked("")

        func set(_ text: String) { self.text.withLock { $0 = text } }

        var failure: Problem { Problem(text.withLock { $0 }) }
    }

    /// Follows the account instead of the adapter and fails each cleanup with the reason, until the task is cancelled.
    private func refuse(_ reason: Reason, _ directory: String) async {
        let application = SharedDeviceApplication(identifier: app, bus: bus, stateDirectory: directory)
        let cleanup = CleanupCoordinator()
        do {
            try cleanup.register("adapter") { _ -> String in throw reason.failure }
        } catch {
            return log("\(error)")
        }
        await application.follow(cleanup) { _ in }
    }

    // MARK: The present manifest

    private func mayRun(_ cleanup: AppCleanup) -> Bool {
        let user = cleanup.user.number
        guard geteuid() != 0, geteuid() != user else { return true }
        log(
            "the adapter runs as user \(geteuid()), and the manifest of \(app) names user \(user); run it as that user, or as root"
        )
        return false
    }

    private func isUsable(_ cleanup: AppCleanup, _ application: SharedDeviceApplication) -> Bool {
        guard mayRun(cleanup) else { return false }
        // The record of pending cleanups must survive the deletion.
        for path in cleanup.delete where "\(application.stateDirectory)/".hasPrefix("\(path)/") {
            log("the manifest of \(app) deletes \(path), in which the adapter keeps its record; name other directories")
            return false
        }
        return true
    }

    private func run(_ cleanup: AppCleanup, _ application: SharedDeviceApplication) async {
        let program = cleanup.program(mark: application.stateDirectory)
        let directory = application.stateDirectory
        let adapter = Adapter(cleanup, program: program, start: cleanup.start, stateDirectory: directory, log: log)
        do {
            try await adapter.follow(application)
            // Runs in a separate task, because a cancelled task must still stop the command that it started.
            if let command = program as? OwnedCommand { try await Task { try await command.stop() }.value }
        } catch {
            log("\(error)")
        }
    }
}
