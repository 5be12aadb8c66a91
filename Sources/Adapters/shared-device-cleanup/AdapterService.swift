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
        var running: Task<Void, Never>?
        var isFirst = true
        for await manifests in updates {
            for problem in manifests.problems { log("\(problem)") }
            let manifest = manifests.manifests.first { $0.identifier == app }
            let cleanup = manifest?.cleanup
            guard isFirst || cleanup != present?.cleanup || manifest?.busName != present?.busName else { continue }
            isFirst = false
            running?.cancel()
            await running?.value
            if let old = present?.cleanup,
                old.program != cleanup?.program || !old.delete.allSatisfy({ cleanup?.delete.contains($0) == true })
            {
                await retire(old)
            }
            present = cleanup.map { ($0, manifest?.busName) }
            running = cleanup.map { cleanup in
                Task { [busName = manifest?.busName] in await self.run(cleanup, busName) }
            }
            if cleanup == nil { log("no manifest of \(app) has the key “cleanup”; waiting for one") }
        }
        running?.cancel()
        await running?.value
    }

    /// Stops and deletes what a manifest named that has changed: nobody else would. Tries until it succeeds, or the task is cancelled.
    private func retire(_ cleanup: AppCleanup) async {
        log("the manifest of \(app) has changed; what it named is stopped and deleted")
        let mark = SharedDeviceApplication(identifier: app, bus: bus, stateDirectory: stateDirectory).stateDirectory
        guard mayRun(cleanup), let (program, _) = program(of: cleanup, mark: mark) else { return }
        let adapter = adapter(cleanup, program)
        while !Task.isCancelled {
            do throws(AdapterFailure) { return try await adapter.retire() } catch { log("\(error)") }
            try? await Task.sleep(for: .seconds(10))
        }
    }

    private func mayRun(_ cleanup: AppCleanup) -> Bool {
        let user = cleanup.user.number
        guard geteuid() != 0, geteuid() != user else { return true }
        log("this is user \(geteuid()), and the manifest of \(app) names user \(user); run it as that user, or as root")
        return false
    }

    /// What is stopped and started; `nil` where the manifest names nothing.
    private func program(of cleanup: AppCleanup, mark: String) -> (any ProgramControl, OwnedCommand?)? {
        if let command = ownedCommand(cleanup, mark: mark) { return (command, command) }
        guard case .unit(let name) = cleanup.program else { return nil }
        return (UnitControl(name, isSystem: geteuid() == 0), nil)
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
        guard let (program, command) = program(of: cleanup, mark: application.stateDirectory) else { return }
        let adapter = adapter(cleanup, program)
        do {
            try await adapter.follow(application)
            // A task that is cancelled may still end what it has started.
            if let command { try await Task { try await command.stop() }.value }
        } catch {
            log("\(error)")
        }
    }

    private func ownedCommand(_ cleanup: AppCleanup, mark: String) -> OwnedCommand? {
        guard let words = cleanup.command else { return nil }
        var settings = OwnedCommand.Settings(mark: mark, command: words)
        settings.user = cleanup.user.number
        if let data = cleanup.data {
            settings.environment = AdapterEnvironment.variables(data: data)
                .merging(cleanup.preset?.environment ?? [:]) { $1 }
            settings.directories =
                AdapterEnvironment.directories(data: data)
                + (cleanup.preset?.directories(data: data) ?? [])
        } else if let home = cleanup.user.home {
            settings.environment["HOME"] = home
        }
        if cleanup.user.number != geteuid() {
            settings.launcher =
                ["/proc/self/exe", "launch", "--user", "\(cleanup.user.number)"]
                + settings.directories.flatMap { ["--directory", $0] } + ["--"]
        }
        if case .flatpak(let name) = cleanup.program {
            settings.killer = ["flatpak", "kill", name]
            // A Flatpak's instances are in its user's runtime directory.
            if cleanup.user.number != geteuid() {
                let user = "\(cleanup.user.number)"
                settings.killer =
                    ["/proc/self/exe", "launch", "--user", user, "--", "env", "XDG_RUNTIME_DIR=/run/user/\(user)"]
                    + settings.killer
            }
        }
        return OwnedCommand(settings)
    }
}
