import Glibc

// Text that comes from other processes, and where it goes.

extension Unicode.Scalar {
    /// Whether a terminal shows it and does nothing else: it ends no line, moves no cursor, starts no terminal's command and turns no
    /// direction of writing.
    package var isPrintable: Bool {
        switch properties.generalCategory {
        case .control, .lineSeparator, .paragraphSeparator: false
        // The two joiners shape the letters beside them.
        case .format: self == "\u{200C}" || self == "\u{200D}"
        default: true
        }
    }
}

extension String {
    /// The text on one line and in quotes, with any characters in it.
    package var quotedOnOneLine: String {
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
///   - waits: whether to wait for room in a pipe or terminal that is non-blocking.
///   - deadline: until when; `nil` means for ever.
/// - Returns: 0, or the error number of the write that failed.
package func writeAll(
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
