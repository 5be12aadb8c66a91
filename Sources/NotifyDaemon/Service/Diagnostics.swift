import Glibc

/// What people are to know, one line each on standard error.
package enum Diagnostics {
    package static func write(_ text: String) {
        // Nothing that a message brings may make two lines of one.
        let line = "notifyd: " + text.unicodeScalars.map { $0.value < 32 ? " " : String($0) }.joined() + "\n"
        write(line, to: 2)
    }

    /// Writes all of a text; whether it could.
    @discardableResult
    package static func write(_ text: String, to descriptor: CInt) -> Bool {
        var text = text
        return text.withUTF8 { bytes in
            var rest = UnsafeRawBufferPointer(bytes)[...]
            while !rest.isEmpty {
                let written = Glibc.write(descriptor, UnsafeRawBufferPointer(rebasing: rest).baseAddress, rest.count)
                guard written > 0 else {
                    if errno == EINTR { continue }
                    return false
                }
                rest = rest.dropFirst(written)
            }
            return true
        }
    }
}
