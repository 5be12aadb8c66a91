import Basics
import Glibc

/// The progress of a program on standard error: one line that is rewritten, or without a terminal a line per message.
@_spi(Extensions) public final class ProgressLine: Sendable {
    private let name: String
    private let isRewritten = TerminalOutput.showsCursor(STDERR_FILENO)

    @_spi(Extensions) public init(_ name: String) { self.name = name }

    /// Shows the activity that begins now.
    @_spi(Extensions) public func show(_ text: String) {
        let line = "\(name): \(text.printable)"
        // Without line wrap the terminal truncates a long line; a wrapped line could not be rewritten.
        write(isRewritten ? "\r\u{1B}[K\u{1B}[?7l\(line)\u{1B}[?7h" : line + "\n")
    }

    /// Removes the line before other output.
    @_spi(Extensions) public func clear() { if isRewritten { write("\r\u{1B}[K") } }

    private func write(_ text: String) {
        let bytes = Array(text.utf8)
        // A failure is ignored: standard error may be closed.
        _ = Glibc.write(STDERR_FILENO, bytes, bytes.count)
    }
}
