import AppAdapters
import DBusTransport
import DeviceConfiguration
import Glibc
import SharedDevice

/// Runs the adapter that an app's manifest describes, and another one when the manifest changes.
struct AdapterService {
    let app: String
    let bus: Bus
    let stateDirectory: String?

    /// Follows the manifests until the task is cancelled.
    func follow(_ updates: AsyncStream<AppManifests>) async {
        var present: (cleanup: AppCleanup, busName: String?)?
        var running: Task<[AppCleanup], Never>?
        var told: [ManagedConfigurationError] = []
        for await manifests in updates {
            let problems = manifests.problems(of: app)
            // An update may be about another app.
            if problems.told != told { for problem in problems.told { log("\(problem)") } }
            told = problems.told
            let manifest = manifests.manifests.first { $0.identifier == app }
            let cleanup = manifest?.adapter
            guard running == nil || cleanup != present?.cleanup || manifest?.busName != present?.busName else {
                continue
            }
            running?.cancel()
            let former = (await running?.value ?? []) + [present?.cleanup].compactMap { $0 }
            let left = former.filter { old in cleanup.map { !$0.includes(old) } ?? true }
            if cleanup == nil {
                log(
                    problems.isRefused
                        ? "the manifest of \(app) is refused (above); waiting for a valid one"
                        : "no manifest of \(app) has the key “cleanup” for an adapter; waiting for one"
                )
            }
            present = cleanup.map { ($0, manifest?.busName) }
            running = Task { [busName = manifest?.busName] in
                let left = await self.retire(left)
                if left.isEmpty, let cleanup { await self.run(cleanup, busName) }
                return left
            }
        }
        running?.cancel()
        _ = await running?.value
    }

    /// Stops and deletes what manifests named that have changed: no later cleanup does. Tries until it succeeds, or the task is cancelled; until
    /// then there is no receipt.
    ///
    /// - Returns: what is left to do.
    private func retire(_ former: [AppCleanup]) async -> [AppCleanup] {
        var left = former
        while let cleanup = left.first, !Task.isCancelled {
            log("the manifest of \(app) has changed; what it named is stopped and deleted")
            let mark = SharedDeviceApplication(identifier: app, bus: bus, stateDirectory: stateDirectory).stateDirectory
            do throws(AdapterFailure) {
                if mayRun(cleanup) { try await adapter(cleanup, cleanup.program(mark: mark)).retire() }
                left.removeFirst()
            } catch {
                log("\(error). Until then there is no receipt; to go on without, restart this adapter")
                try? await Task.sleep(for: .seconds(10))
            }
        }
        return left
    }

    private func mayRun(_ cleanup: AppCleanup) -> Bool {
        let user = cleanup.user.number
        guard geteuid() != 0, geteuid() != user else { return true }
        log("this is user \(geteuid()), and the manifest of \(app) names user \(user); run it as that user, or as root")
        return false
    }

    private func adapter(_ cleanup: AppCleanup, _ program: any ProgramControl) -> Adapter {
        Adapter(
            program: program,
            start: cleanup.start,
            paths: cleanup.delete,
            user: cleanup.user.number,
            log: { log($0) }
        )
    }

    private func run(_ cleanup: AppCleanup, _ busName: String?) async {
        guard mayRun(cleanup) else { return }
        let application = SharedDeviceApplication(
            identifier: app,
            bus: bus,
            busName: busName,
            stateDirectory: stateDirectory
        )
        // The record of what is owed has to outlast the deletion.
        for path in cleanup.delete where "\(application.stateDirectory)/".hasPrefix("\(path)/") {
            return log(
                "the manifest of \(app) deletes \(path), in which the adapter keeps its record; name other directories"
            )
        }
        let program = cleanup.program(mark: application.stateDirectory)
        let adapter = adapter(cleanup, program)
        do {
            try await adapter.follow(application)
            // A task that is cancelled may still end what it has started.
            if let command = program as? OwnedCommand { try await Task { try await command.stop() }.value }
        } catch {
            log("\(error)")
        }
    }
}
