import Glibc

/// Standard output and standard error, unbuffered: what an app shows is to be seen at once, and to be gone at once.
package enum Console {
    /// Whether a person sees standard output.
    package static let isTerminal = isatty(STDOUT_FILENO) != 0

    /// Writes to standard output.
    package static func write(_ text: String) { write(text, STDOUT_FILENO) }

    /// Writes a line to standard error.
    package static func warn(_ text: String) { write(text + "\n", STDERR_FILENO) }

    private static func write(_ text: String, _ descriptor: CInt) {
        var rest = Array(text.utf8)[...]
        while !rest.isEmpty {
            let written = rest.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
            guard written > 0 else {
                if errno == EINTR || errno == EAGAIN { continue }
                // Where the output is closed, there is nobody to show anything to.
                return
            }
            rest = rest.dropFirst(written)
        }
    }
}
