import Glibc

/// What is under way, on standard error: one line that rewrites itself on a terminal, a line for each benchmark in a file.
final class Progress {
    private let isTerminal = isatty(STDERR_FILENO) == 1
    private var heading = ""

    func begin(_ name: String, _ position: Int, of count: Int) {
        heading = "[\(position)/\(count)] \(name)"
        if isTerminal { note("") } else { write("\(heading)\n") }
    }

    func round(_ round: Int, of rounds: Int) {
        note(round == 0 ? "warming up" : "round \(round) of \(rounds)")
    }

    func note(_ text: String) {
        if isTerminal { write("\r\u{1B}[K\(heading) \(text)") }
    }

    func end() {
        if isTerminal { write("\r\u{1B}[K") }
    }

    private func write(_ text: String) {
        var text = text
        // Where it fails there is nobody to tell, and the table goes elsewhere.
        text.withUTF8 { _ = Glibc.write(STDERR_FILENO, $0.baseAddress, $0.count) }
    }
}
