import AppAdapters
import Basics
import DBus
import DeviceConfiguration
import FoundationEssentials
import Glibc
@_spi(Extensions) package import SharedDevice

/// The browser that shows the sign-in, with its arguments.
package struct BrowserChoice: Sendable, Hashable {
    package let program: String
    package let arguments: [String]
    private let preset: AdapterPreset

    /// Browsers that keep all data in one directory, in order of preference.
    private static let known = [
        "chromium", "chromium-browser", "google-chrome", "microsoft-edge", "firefox", "firefox-esr",
    ]

    /// - Parameters:
    ///   - program: the browser that was chosen; `nil` selects the first in `PATH`.
    ///   - exists: whether there is such a program.
    /// - Throws: ``SharedDeviceError/Code/invalidRequest`` if the browser does not keep all data in one directory.
    ///   Cookies in the user's own profile would sign the next user in as this one.
    package init(
        _ program: String?,
        arguments: [String],
        exists: (String) -> Bool = Self.isInPath
    ) throws(SharedDeviceError) {
        let known = Self.known.joined(separator: ", ")
        guard let program = program ?? Self.known.first(where: exists) else {
            throw SharedDeviceError(
                .invalidRequest,
                attempted: "open a browser",
                message: "no browser is installed; install one of \(known), or sign in with --method device-code"
            )
        }
        let name = program.split(separator: "/").last.map(String.init) ?? program
        guard Self.known.contains(name) else {
            throw SharedDeviceError(
                .invalidRequest,
                attempted: "open a browser",
                message: "“\(name)” is not known to keep a sign-in in a separate directory; name one of \(known)"
            )
        }
        self.program = program
        self.arguments = arguments
        preset = name.hasPrefix("firefox") ? .firefox : .chromium
    }

    @Sendable package static func isInPath(_ name: String) -> Bool {
        let path = ProcessInfo.processInfo.environment["PATH"] ?? "/usr/bin:/bin"
        return path.split(separator: ":").contains { access("\($0)/\(name)", X_OK) == 0 }
    }

    func command(showing page: String, data: String) -> [String] {
        [program] + preset.arguments(data: data) + arguments + [page]
    }

    func settings(showing page: String, in data: String) throws(SharedDeviceError) -> OwnedCommand.Settings {
        do throws(ValueFlaw) {
            try preset.check(data: data)
        } catch {
            throw SharedDeviceError(
                .invalidRequest,
                attempted: "open a browser",
                message: "\(error); set XDG_RUNTIME_DIR"
            )
        }
        var settings = OwnedCommand.Settings(mark: data, command: command(showing: page, data: data))
        settings.environment = AdapterEnvironment.variables(data: data).merging(preset.environment) { $1 }
        settings.directories = AdapterEnvironment.directories(data: data) + preset.directories(data: data)
        // Browsers print to standard output (“You are running in headless mode”), where apps read the prompt's result.
        settings.output = .descriptor(STDERR_FILENO)
        settings.restarts = false
        settings.isMarkedByArguments = true
        return settings
    }
}

/// The browser of one sign-in, with its profile. Both end together.
package final class BrowserWindow: Sendable {
    private let profile: BrowserProfile
    private let command: OwnedCommand
    private let keeper: BrowserGuard

    /// Opens a browser with a new profile at this address.
    ///
    /// - Parameter closed: called with the status when the browser has exited by itself.
    /// - Throws: ``SharedDeviceError``; then no browser or profile is left.
    package init(
        _ choice: BrowserChoice,
        at address: String,
        in profile: BrowserProfile,
        _ texts: PromptTexts,
        closed: @escaping @Sendable (Int32) -> Void
    ) async throws(SharedDeviceError) {
        self.profile = profile
        keeper = try BrowserGuard()
        command = OwnedCommand(
            try choice.settings(showing: profile.startPage(to: address, texts), in: profile.path),
            ended: { status, _ in closed(status) }
        )
        do throws(AdapterFailure) {
            try await command.start()
        } catch {
            await keeper.dismiss()
            throw SharedDeviceError(.brokerFailed, attempted: "open a browser", message: "\(error)")
        }
    }

    /// Ends the browser with all its processes and deletes the profile.
    ///
    /// - Throws: ``SharedDeviceError/Code/brokerFailed`` with the remains; the next sign-in tries again.
    package func close() async throws(SharedDeviceError) {
        do throws(AdapterFailure) {
            try await command.stop()
        } catch {
            throw SharedDeviceError(.brokerFailed, attempted: "close the browser", message: "\(error)")
        }
        try await profile.remove()
        await keeper.dismiss()
    }
}
