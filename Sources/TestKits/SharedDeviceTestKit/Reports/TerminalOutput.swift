import DBusTransport
import FoundationEssentials
import Glibc

/// What a terminal can do.
package enum TerminalOutput {
    /// Whether a person sees what is written there.
    package static func isTerminal(_ descriptor: CInt) -> Bool { isatty(descriptor) != 0 }

    /// Whether what is written there may have colours: it goes to a terminal that knows them, and `NO_COLOR` is not set.
    package static func showsColour(_ descriptor: CInt) -> Bool {
        let environment = ProcessInfo.processInfo.environment
        return isTerminal(descriptor) && (environment["NO_COLOR"] ?? "").isEmpty && environment["TERM"] != "dumb"
    }
}

/// What a program is at, on standard error: on a terminal one line that is rewritten in place, elsewhere a line for each message.
package final class ProgressLine: Sendable {
    private let name: String
    private let isRewritten: Bool

    /// - Parameters:
    ///   - name: the program, which begins each line.
    ///   - isRewritten: whether a line takes the place of the one before; by default on a terminal.
    package init(_ name: String, isRewritten: Bool = TerminalOutput.showsCursor(STDERR_FILENO)) {
        self.name = name
        self.isRewritten = isRewritten
    }

    /// Shows what begins now.
    package func show(_ text: String) {
        let line = "\(name): \(Text.printable(text))"
        // Without line wrap the terminal cuts a long line, which could not be rewritten otherwise.
        write(isRewritten ? "\r\u{1B}[K\u{1B}[?7l\(line)\u{1B}[?7h" : line + "\n")
    }

    /// Takes the line away, before something else is written.
    package func clear() { if isRewritten { write("\r\u{1B}[K") } }

    private func write(_ text: String) {
        let bytes = Array(text.utf8)
        // If standard error is closed, nobody reads it.
        _ = Glibc.write(STDERR_FILENO, bytes, bytes.count)
    }
}

extension TerminalOutput {
    /// Whether a line on it can be rewritten.
    package static func showsCursor(_ descriptor: CInt) -> Bool {
        isTerminal(descriptor) && ProcessInfo.processInfo.environment["TERM"] != "dumb"
    }
}
