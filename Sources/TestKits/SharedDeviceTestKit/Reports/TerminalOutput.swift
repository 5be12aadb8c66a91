import DBus
import FoundationEssentials
import Glibc

/// The capabilities of a terminal.
package enum TerminalOutput {
    package static func isTerminal(_ descriptor: CInt) -> Bool { isatty(descriptor) != 0 }

    /// Whether output to the descriptor may have colours: it is a terminal with colours, and `NO_COLOR` is not set.
    package static func showsColour(_ descriptor: CInt) -> Bool {
        let environment = ProcessInfo.processInfo.environment
        return isTerminal(descriptor) && (environment["NO_COLOR"] ?? "").isEmpty && environment["TERM"] != "dumb"
    }
}

/// The progress of a program, on standard error: on a terminal one line that is rewritten in place, elsewhere one line
/// per message.
package final class ProgressLine: Sendable {
    private let name: String
    private let isRewritten: Bool

    /// - Parameters:
    ///   - name: the program's name, which begins each line.
    ///   - isRewritten: whether a line replaces the previous one; by default true on a terminal.
    package init(_ name: String, isRewritten: Bool = TerminalOutput.showsCursor(STDERR_FILENO)) {
        self.name = name
        self.isRewritten = isRewritten
    }

    /// Shows the activity that begins now.
    package func show(_ text: String) {
        let line = "\(name): \(Text.printable(text))"
        // Without line wrap the terminal truncates a long line; a wrapped line could not be rewritten.
        write(isRewritten ? "\r\u{1B}[K\u{1B}[?7l\(line)\u{1B}[?7h" : line + "\n")
    }

    /// Removes the line before other output.
    package func clear() { if isRewritten { write("\r\u{1B}[K") } }

    private func write(_ text: String) {
        let bytes = Array(text.utf8)
        // A failure is ignored: standard error may be closed.
        _ = Glibc.write(STDERR_FILENO, bytes, bytes.count)
    }
}

extension TerminalOutput {
    /// Whether a line on the descriptor can be rewritten.
    package static func showsCursor(_ descriptor: CInt) -> Bool {
        isTerminal(descriptor) && ProcessInfo.processInfo.environment["TERM"] != "dumb"
    }
}
