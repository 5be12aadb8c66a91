import Glibc

// Handles text from other processes, and its output.

extension Unicode.Scalar {
    /// Whether a terminal only displays the scalar: it must not end a line, move the cursor, begin a terminal command
    /// or change the writing direction.
    public var isPrintable: Bool {
        switch properties.generalCategory {
        case .control, .lineSeparator, .paragraphSeparator: false
        // The two joiners shape the adjacent letters.
        case .format: self == "\u{200C}" || self == "\u{200D}"
        default: true
        }
    }
}

extension String {
    /// The text in quotes on one line, with unprintable characters escaped.
    public var quotedOnOneLine: String {
        unicodeScalars.reduce(into: "“") { result, scalar in
            if scalar.isPrintable {
                result.unicodeScalars.append(scalar)
            } else {
                result += "\\u{\(String(scalar.value, radix: 16))}"
            }
        } + "”"
    }
}

/// Writes all of a text.
///
/// - Parameters:
///   - waits: whether to wait for room in a non-blocking pipe or terminal.
///   - deadline: the end of the wait; `nil` to wait without limit.
/// - Returns: 0, or the error number of the write that failed.
public func writeAll(
    _ text: String,
    to descriptor: CInt,
    waits: Bool = false,
    until deadline: ContinuousClock.Instant? = nil
) -> CInt {
    var text = text
    return text.withUTF8 { bytes in
        var rest = UnsafeRawBufferPointer(bytes)[...]
        while !rest.isEmpty {
            let written = write(descriptor, UnsafeRawBufferPointer(rebasing: rest).baseAddress, rest.count)
            if written > 0 {
                rest = rest.dropFirst(written)
            } else if errno == EAGAIN, waits {
                var room = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
                let left = deadline.map { CInt(clamping: Int64(max(.zero, $0 - .now) / .milliseconds(1))) } ?? -1
                if poll(&room, 1, left) == 0 { return ETIMEDOUT }
            } else if errno != EINTR {
                return errno
            }
        }
        return 0
    }
}

/// The capabilities of a terminal.
public enum TerminalOutput {
    public static func isTerminal(_ descriptor: CInt) -> Bool { isatty(descriptor) != 0 }

    /// Whether output to the descriptor may have colours: it is a terminal with colours, and `NO_COLOR` is not set.
    public static func showsColour(_ descriptor: CInt) -> Bool {
        showsCursor(descriptor) && (ProcessEnvironment.value("NO_COLOR") ?? "").isEmpty
    }

    /// Whether a line on the descriptor can be rewritten.
    public static func showsCursor(_ descriptor: CInt) -> Bool {
        isTerminal(descriptor) && ProcessEnvironment.value("TERM") != "dumb"
    }
}
