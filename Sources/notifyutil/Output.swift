import Glibc

/// The process's output, unbuffered: a line is out when `write` returns, whoever reads it. C's `stdout` is a global variable
/// that Swift 6 does not take for safe.
enum Output: CInt {
    case standard = 1
    case error = 2

    func write(_ text: String) {
        var text = text
        text.withUTF8 { bytes in
            var rest = UnsafeRawBufferPointer(bytes)[...]
            while !rest.isEmpty {
                let written = Glibc.write(rawValue, UnsafeRawBufferPointer(rebasing: rest).baseAddress, rest.count)
                guard written > 0 else {
                    if errno == EINTR { continue }
                    // Whoever reads the reports must not take a full disk for silence (sysexits.h: EX_IOERR).
                    exit(74)
                }
                rest = rest.dropFirst(written)
            }
        }
    }
}
