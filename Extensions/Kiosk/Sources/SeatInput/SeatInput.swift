import Basics
import DBus

/// Says when the input devices of a graphical session were used, but neither which device nor which key.
package protocol SeatInput: Sendable {
    /// The interface that the session offers, for the log.
    var name: String { get }

    /// Waits until there has been input after `moment`. Returns at once if there has been some already. The clock stops
    /// while the device sleeps, as the idle times of X and Mutter do.
    ///
    /// - Throws: ``SeatInputError`` when the session is gone; `CancellationError`.
    func next(after moment: SuspendingClock.Instant) async throws
}

/// The session offers no input, or no longer: the operation, the cause and the remedy.
package struct SeatInputError: Error, CustomStringConvertible {
    /// Whether the session has no interface that this program knows, which only an administrator can change. Otherwise
    /// the session does not respond, or has ended.
    package let isUnsupported: Bool
    package let description: String

    init(isUnsupported: Bool = false, _ description: String) {
        (self.isUnsupported, self.description) = (isUnsupported, description)
    }
}

/// Chooses how to see the input of this process's session.
package enum SessionInput {
    /// Chooses the first that the session has, by the environment: Wayland, Mutter's, X.
    ///
    /// - Throws: ``SeatInputError``; if the session has none, with what was tried.
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
                throw SeatInputError("could not ask the session's bus for GNOME's Mutter: \(error)")
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
            isUnsupported: true,
            "this session does not show when its input devices are used: \(missing.joined(separator: "; ")). Start this program "
                + "inside the graphical session, or use a compositor with ext-idle-notify-v1"
        )
    }
}
