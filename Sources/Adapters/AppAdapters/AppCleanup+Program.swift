package import DeviceConfiguration
import Glibc

extension AppCleanup {
    /// The control that stops and starts the app's program.
    ///
    /// - Parameter mark: the directory of the adapter's record of the app, which marks the processes of a command.
    package func program(mark: String) -> any ProgramControl {
        switch (program, cleaner) {
        case (.unit(let name), _): UnitControl(name, isSystem: geteuid() == 0)
        case (.processes(let path), _): AppProcesses(name: path, mark: .executable(path), user: user.number)
        case (.flatpak(let id), .app):
            AppProcesses(name: program.description, mark: .flatpak(id), user: user.number)
        case (.flatpak, .adapter), (.command, _): OwnedCommand(settings(mark: mark))
        }
    }

    private func settings(mark: String) -> OwnedCommand.Settings {
        var settings = OwnedCommand.Settings(mark: mark, command: command ?? [])
        settings.user = user.number
        if let data {
            settings.environment = AdapterEnvironment.variables(data: data)
                .merging(preset?.environment ?? [:]) { $1 }
            settings.directories = AdapterEnvironment.directories(data: data) + (preset?.directories(data: data) ?? [])
            settings.markingWords = preset?.place(data: data) ?? []
        } else if let home = user.home {
            settings.environment["HOME"] = home
        }
        if user.number != geteuid() {
            settings.launcher =
                ["/proc/self/exe", "launch", "--user", "\(user.number)"]
                + settings.directories.flatMap { ["--directory", $0] } + ["--"]
        }
        if case .flatpak(let name) = program {
            settings.killer = ["flatpak", "kill", name]
            // The list of Flatpak instances is in the user's runtime directory.
            if user.number != geteuid() {
                let user = "\(user.number)"
                settings.killer =
                    ["/proc/self/exe", "launch", "--user", user, "--", "env", "XDG_RUNTIME_DIR=/run/user/\(user)"]
                    + settings.killer
            }
        }
        return settings
    }
}
