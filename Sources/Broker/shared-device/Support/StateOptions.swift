import ArgumentParser
import Foundation
import Glibc
import SharedDeviceBroker

/// Which device's state a command is about.
struct StateOptions: ParsableArguments {
    @Option(
        name: .customLong("state"),
        help: ArgumentHelp(
            "The state directory.",
            discussion: "Otherwise $\(StateDirectory.environmentVariable); else /var/lib/shared-device for root; else "
                + "shared-device in $XDG_STATE_HOME or ~/.local/state.",
            valueName: "dir"
        )
    )
    var directory: String?

    var path: String {
        directory
            ?? StateDirectory.path(
                environment: ProcessInfo.processInfo.environment,
                effectiveUser: geteuid(),
                home: NSHomeDirectory()
            )
    }

    func validate() throws {
        if directory?.isEmpty == true { throw ValidationError("--state needs the name of a directory") }
    }

    func openDatabase(_ opening: DeviceDatabase.Opening) throws(StoreError) -> DeviceDatabase {
        try DeviceDatabase(directory: path, opening)
    }
}
