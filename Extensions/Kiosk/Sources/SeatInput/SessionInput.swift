import Basics
import DBus

/// Chooses how to see the input of this process's session.
package enum SessionInput {
    /// Chooses the first that the session has, by the environment: Wayland, Mutter's, X.
    ///
    /// - Throws: ``SeatInputError``; `unsupported` with what was tried.
    package static func open() async throws(SeatInputError) -> any SeatInput {
        var missing: [String] = []
        let compositor = ProcessEnvironment.value("WAYLAND_DISPLAY")
        if let compositor {
            if let input = try CompositorInput(display: compositor) { return input }
            missing.append(
                "the compositor “\(compositor.printable(200))” has neither ext_idle_notifier_v1 nor org_kde_kwin_idle"
            )
        }
        do throws(DBusError) {
            if let input = try await MutterInput(on: try DBusConnection.whenThere(.session)) { return input }
            missing.append("GNOME's Mutter is not on the session's bus")
        } catch {
            // On Wayland nothing is left to try, and a bus that fails once may respond later.
            guard error.code == .noBus || compositor == nil else {
                throw SeatInputError(.lost, "could not ask the session's bus for GNOME's Mutter: \(error)")
            }
            missing.append("GNOME's Mutter cannot be asked: \(error)")
        }
        // A program of X sees little of a Wayland session's input.
        if compositor == nil, let screen = ProcessEnvironment.value("DISPLAY") {
            if let input = try ScreenInput(display: screen) { return input }
            missing.append("the X server “\(screen.printable(200))” lacks the extension MIT-SCREEN-SAVER")
        } else if compositor == nil {
            missing.append("neither WAYLAND_DISPLAY nor DISPLAY is set")
        }
        throw SeatInputError(
            .unsupported,
            "this session does not show when its input devices are used: \(missing.joined(separator: "; ")). Start this program "
                + "inside the graphical session, or use a compositor with ext-idle-notify-v1"
        )
    }
}
