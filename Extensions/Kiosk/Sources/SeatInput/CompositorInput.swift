import Basics
import CSeatInput
import Glibc
import Synchronization

/// The input of a Wayland session, by `ext-idle-notify-v1` or the older `org_kde_kwin_idle`.
package final class CompositorInput: SeatInput {
    private struct State {
        var lastInput: SuspendingClock.Instant?
        var failure: SeatInputError?
    }

    /// How long a pause has to last for a notice of it.
    private static let pause = Duration.seconds(2)

    package let name: String
    private let state = Locked(State())
    /// Yields when the state has changed.
    private let changes: (stream: AsyncStream<Void>, continuation: AsyncStream<Void>.Continuation)

    /// Connects to the compositor that the environment names.
    ///
    /// - Returns: `nil` if the compositor has neither interface.
    /// - Throws: ``SeatInputError`` if it does not respond.
    package init?(display: String) throws(SeatInputError) {
        var opened: OpaquePointer?
        let code = CSeatInput_openCompositor(UInt32(Self.pause / .milliseconds(1)), &opened)
        guard code != ENOTSUP else { return nil }
        guard code == 0, let opened else {
            throw SeatInputError(
                "could not connect to the Wayland compositor “\(display)”: \(String(cString: strerror(code))); "
                    + "see that it runs, and that WAYLAND_DISPLAY and XDG_RUNTIME_DIR name it"
            )
        }
        name = "\(String(cString: CSeatInput_interface(opened))) of the compositor “\(display)”"
        changes = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
        let compositor = UInt(bitPattern: opened)
        let thread = QuietThread.start("compositor") { [self] in
            let context = Unmanaged.passUnretained(self).toOpaque()
            let code = CSeatInput_followCompositor(
                OpaquePointer(bitPattern: compositor),
                { context, isUsed in
                    guard let context else { return }
                    Unmanaged<CompositorInput>.fromOpaque(context).takeUnretainedValue().hear(isUsed)
                },
                context
            )
            let reason = String(cString: strerror(code))
            set { $0.failure = SeatInputError("the compositor “\(display)” has ended the connection: \(reason)") }
        }
        guard thread != nil else {
            throw SeatInputError(
                "no thread is left to follow the compositor “\(display)”; raise the limit of processes (ulimit -u)"
            )
        }
    }

    package func next(after moment: SuspendingClock.Instant) async throws {
        while true {
            let (last, failure) = state.withLock { ($0.lastInput, $0.failure) }
            if let failure { throw failure }
            if let last, last > moment { return }
            var iterator = changes.stream.makeAsyncIterator()
            _ = await iterator.next()
            try Task.checkCancellation()
        }
    }

    /// Called on the compositor's thread.
    private func hear(_ isUsed: Bool) {
        set {
            // At the notice of a pause, the last input was before the pause. At the start there may have been none.
            $0.lastInput = isUsed ? SuspendingClock.now : $0.lastInput.map { max($0, .now - Self.pause) }
        }
    }

    private func set(_ change: @Sendable (inout State) -> Void) {
        state.withLock { change(&$0) }
        changes.continuation.yield()
    }
}
