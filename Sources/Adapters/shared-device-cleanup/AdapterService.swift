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
            present = cleanup.map { ($0, manifest?.busName) }
            running = cleanup.map { cleanup in
                Task { [busName = manifest?.busName] in await self.run(cleanup, busName) }
            }
            if cleanup == nil { log("no manifest of \(app) has the key “cleanup”; waiting for one") }
        }
        running?.cancel()
        await running?.value
    }

    private func run(_ cleanup: AppCleanup, _ busName: String?) async {
        let user = cleanup.user.number
        guard geteuid() == 0 || geteuid() == user else {
            return log(
                "this is user \(geteuid()), and the manifest of \(app) names user \(user); run it as that user, or as root"
            )
        }
        let application = SharedDeviceApplication(
            identifier: app,
            bus: bus,
            busName: busName,
            stateDirectory: stateDirectory
        )
        let command = ownedCommand(cleanup, mark: application.stateDirectory)
        let program: any ProgramControl
        if let command {
            program = command
        } else {
            guard case .unit(let name) = cleanup.program else { return }
            program = UnitControl(name, isSystem: geteuid() == 0)
        }
        let adapter = Adapter(
            program: program,
            start: cleanup.start,
            paths: cleanup.delete,
            user: user,
            log: { log($0) }
        )
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
        }
        return OwnedCommand(settings)
    }
}
