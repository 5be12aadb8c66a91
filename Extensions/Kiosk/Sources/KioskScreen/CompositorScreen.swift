import Basics
import CScreen
package import CommandParts
import Glibc
@_spi(Extensions) package import SharedDevice
import Synchronization

/// The session's compositor cannot show pictures, or can no longer: the operation, the cause and the remedy.
package struct CompositorError: Error, CustomStringConvertible {
    /// Whether only an administrator can change that.
    package let isUnsupported: Bool
    package let description: String
}

/// Shows the state on a Wayland compositor, and passes the input to it.
///
/// The compositor is served by a thread, which draws and waits. All else may be called on any thread.
package final class CompositorScreen: Sendable {
    private struct State {
        var screen: ScreenState
        /// What the compositor shows, and for which state.
        var shown = ScreenContent.nothing
        var drawn = ScreenPicture()
        var needsRelease = true
    }

    private let state: Locked<State>
    private let texts: Texts
    /// The address of the connection.
    private let connection: UInt
    private let request: @Sendable (ScreenRequest) -> Void
    private let start = SuspendingClock.now

    private var screen: OpaquePointer? { OpaquePointer(bitPattern: connection) }

    /// Connects to the compositor that the environment names.
    ///
    /// - Parameter request: Takes what the person wants. It is called on the compositor's thread.
    /// - Throws: ``CompositorError``.
    package init(
        _ screen: ScreenState,
        texts: Texts,
        request: @escaping @Sendable (ScreenRequest) -> Void
    ) throws(CompositorError) {
        guard let display = ProcessEnvironment.value("WAYLAND_DISPLAY") else {
            throw CompositorError(
                isUnsupported: true,
                description:
                    "WAYLAND_DISPLAY is not set. Start this program inside a session of a Wayland compositor, such as sway"
            )
        }
        var opened: OpaquePointer?
        let code = CScreen_open(&opened)
        guard code == 0, let opened else {
            let name = display.printable(200)
            let description =
                code == ENOTSUP
                ? "the compositor “\(name)” lacks xdg_wm_base, wl_shm or wl_compositor of version 3; use a current one"
                : "could not connect to the Wayland compositor “\(name)”: \(String(cString: strerror(code))); "
                    + "see that it runs, and that WAYLAND_DISPLAY and XDG_RUNTIME_DIR name it"
            throw CompositorError(isUnsupported: code == ENOTSUP, description: description)
        }
        connection = UInt(bitPattern: opened)
        state = Locked(State(screen: screen))
        (self.texts, self.request) = (texts, request)
    }

    /// How warnings and the lock are shown, for the log.
    package var interfaces: String {
        let names = [CScreen_panel, CScreen_cover].map { String(cString: CScreen_interface(screen, $0)) }
        return "warnings by \(names[0]), the lock by \(names[1])"
    }

    /// Shows the state until the connection is lost.
    package func run() async -> CompositorError {
        let code = await withCheckedContinuation { (done: CheckedContinuation<CInt, Never>) in
            let thread = QuietThread.start("compositor") { [self] in done.resume(returning: serve()) }
            if thread == nil { done.resume(returning: errno) }
        }
        let reason = String(cString: strerror(code))
        return CompositorError(isUnsupported: false, description: "the compositor has ended the connection: \(reason)")
    }

    /// Changes the state, and then what is shown.
    package func change(_ body: @Sendable (inout ScreenState) -> Void) {
        state.withLock { body(&$0.screen) }
        CScreen_wake(screen)
    }

    /// What the compositor shows.
    package var shown: ScreenContent { state.withLock { $0.shown } }

    /// Waits until the compositor shows what it should, at most for this time.
    package func settle(within time: Duration) async {
        let end = ContinuousClock.now + time
        while !state.withLock({ $0.shown == $0.screen.shown }), ContinuousClock.now < end, !Task.isCancelled {
            try? await Task.sleep(for: .milliseconds(10))
        }
    }

    // MARK: On the compositor's thread

    private func serve() -> CInt {
        CScreen_run(
            screen,
            CScreen_Handlers(
                context: Unmanaged.passUnretained(self).toOpaque(),
                update: { CompositorScreen.at($0)?.update() ?? -1 },
                draw: { context, pixels, width, height, stride, scale in
                    guard let pixels else { return }
                    CompositorScreen.at(context)?
                        .draw(pixels, Int(width), Int(height), stride: Int(stride), scale: Int(scale))
                },
                pressed: { context, symbol, text, time in
                    let key: ScreenState.Key? =
                        switch symbol {
                        // Return and Enter; BackSpace; Escape.
                        case 0xFF0D, 0xFF8D: .enter
                        case 0xFF08: .erase
                        case 0xFF1B: .escape
                        // Keys such as Shift have no text.
                        default: text.map(String.init(cString:)).flatMap { $0.isEmpty ? nil : .text($0) }
                        }
                    if let key { CompositorScreen.at(context)?.press(key, at: time) }
                },
                touched: { context, x, y, width, height in
                    CompositorScreen.at(context)?.touch(x: x, y: y, width: Double(width), height: Double(height))
                }
            )
        )
    }

    private static func at(_ context: UnsafeMutableRawPointer?) -> CompositorScreen? {
        context.map { Unmanaged<CompositorScreen>.fromOpaque($0).takeUnretainedValue() }
    }

    /// Returns the milliseconds until the next call.
    private func update() -> CInt {
        let (wanted, content, isTimed, isNew, releases) = state.withLock { state in
            state.screen.tick(.now)
            let picture = state.screen.picture(texts, now: .now)
            let isNew = picture != state.drawn
            state.drawn = picture
            // This program does not know whether a lock of its last run is there. Only the broker may end that lock.
            let releases = state.screen.hasAnswer && state.needsRelease
            if releases { state.needsRelease = false }
            return (picture.kind, state.screen.shown, state.screen.isTimed, isNew, releases)
        }
        let kind = wanted == .cover ? CScreen_cover : wanted == .panel ? CScreen_panel : CScreen_nothing
        if releases, kind != CScreen_cover { CScreen_release(screen) }
        CScreen_show(screen, kind)
        if isNew { CScreen_redraw(screen) }
        let isShown = CScreen_shown(screen) == kind
        // Not the content of the present state, which the compositor may not show yet.
        state.withLock { $0.shown = isShown ? content : .nothing }
        // For the countdown, and for the next attempt after a refusal.
        return isTimed ? 500 : -1
    }

    private func draw(_ pixels: UnsafeMutablePointer<UInt8>, _ width: Int, _ height: Int, stride: Int, scale: Int) {
        let picture = state.withLock { $0.drawn }
        ScreenDrawing.draw(picture, into: pixels, width: width, height: height, stride: stride, scale: scale)
    }

    private func press(_ key: ScreenState.Key, at time: UInt32?) {
        // A virtual keyboard may send no times.
        let time = time == 0 ? UInt32(truncatingIfNeeded: Int64(start.duration(to: .now) / .milliseconds(1))) : time
        if let wish = state.withLock({ $0.screen.press(key, at: time, now: .now) }) { request(wish) }
    }

    private func touch(x: Double, y: Double, width: Double, height: Double) {
        let picture = state.withLock { $0.drawn }
        let layout = ScreenLayout(picture, width: width, height: height)
        if let key = picture.kind == .panel ? .enter : layout.key(x: x, y: y) { press(key, at: nil) }
    }
}
