import CSeatInput
import Dispatch
import Glibc

/// The input of an X session, by the extension MIT-SCREEN-SAVER.
package final class ScreenInput: SeatInput {
    /// The pause between two questions to the server, which sends no notice of input.
    private static let pause = Duration.seconds(1)

    package let name: String
    private let display: String
    /// The address of the connection. Only ``queue`` uses it.
    private let screen: UInt
    private let queue = DispatchQueue(label: "screen")

    /// Connects to the X server that the environment names.
    ///
    /// - Returns: `nil` if the server lacks the extension.
    /// - Throws: ``SeatInputError`` if it does not respond.
    package init?(display: String) throws(SeatInputError) {
        var opened: OpaquePointer?
        let code = CSeatInput_openScreen(&opened)
        guard code != ENOTSUP else { return nil }
        guard code == 0, let opened else {
            throw SeatInputError(
                "could not connect to the X server “\(display)”: \(String(cString: strerror(code))); "
                    + "see that it runs, and that DISPLAY and XAUTHORITY name it and its key"
            )
        }
        self.display = display
        screen = UInt(bitPattern: opened)
        name = "MIT-SCREEN-SAVER of the X server “\(display)”"
    }

    package func next(after moment: SuspendingClock.Instant) async throws {
        while try await SuspendingClock.now - unused() <= moment { try await Task.sleep(for: Self.pause) }
    }

    private func unused() async throws(SeatInputError) -> Duration {
        let (code, unused) = await withCheckedContinuation { continuation in
            queue.async { [screen] in
                var unused: UInt32 = 0
                let code = CSeatInput_askScreen(OpaquePointer(bitPattern: screen), &unused)
                continuation.resume(returning: (code, unused))
            }
        }
        guard code == 0 else {
            let reason = String(cString: strerror(code))
            throw SeatInputError("the X server “\(display)” has ended the connection: \(reason)")
        }
        return .milliseconds(Int64(unused))
    }
}
