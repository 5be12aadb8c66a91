import AppAdapters
import ArgumentParser
import Basics
import DBus
import DeviceConfiguration
import Glibc
import SharedDevice

struct EnforceCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "enforce",
        abstract: "Stops apps whose cleanup is late, and deletes their data.",
        discussion: """
            Implements the cleanup policy “enforced”. The broker names the apps whose cleanup is late. Their manifests name what to stop \
            and to delete. On the system bus the broker accepts only root's unit shared-device-enforcement.service as this program.
            """
    )

    @OptionGroup var options: CleanupOptions

    @Option(
        name: .customLong("state"),
        help: ArgumentHelp(
            "The directory that has the adapters' records, each in a directory of its app's identifier.",
            discussion: "Otherwise \(AppCleanup.stateDirectory) for root, and $XDG_STATE_HOME for others.",
            valueName: "dir"
        )
    )
    var stateDirectory: String?

    func run() async throws {
        let (end, updates) = try options.begin()
        let bus = options.chosenBus
        let directory = stateDirectory ?? (options.isRoot ? AppCleanup.stateDirectory : nil)
        let enforcer: Enforcer
        do {
            enforcer = try Enforcer(
                bus: bus,
                mark: { app in
                    let own = directory.map { "\($0)/\(app)" }
                    return SharedDeviceApplication(identifier: app, bus: bus, stateDirectory: own).stateDirectory
                },
                log: log
            )
        } catch {
            log("\(error)")
            throw ExitCode(EX_TEMPFAIL)
        }
        Task {
            await enforcer.run(updates)
            // Exits at once, without waiting for deletions in flight: those could delete the data of a user who signs
            // in later.
            _exit(EX_TEMPFAIL)
        }
        await end.first()
    }
}
