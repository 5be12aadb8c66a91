import Glibc
package import Identity

/// Reads a line that no other memory than a `Secret` is to keep.
package enum SecretLine {
    /// More than any password may have; what is longer is cut, and refused for its length later.
    private static let maximumLength = 4096

    /// The bytes up to the end of the line, without it; `nil` where the input ends before any.
    ///
    /// - Parameter before: Called before each byte is waited for; where it returns `false`, reading ends with `nil`.
    /// - Throws: ``TerminalFailure``, and what `before` throws.
    package static func read(from descriptor: CInt, before: () throws -> Bool) throws -> Secret? {
        let line = UnsafeMutableBufferPointer<UInt8>.allocate(capacity: maximumLength)
        line.initialize(repeating: 0)
        defer {
            line.baseAddress.map { explicit_bzero($0, maximumLength) }
            line.deallocate()
        }
        var count = 0
        while true {
            guard try before() else { return nil }
            var byte: UInt8 = 0
            switch Glibc.read(descriptor, &byte, 1) {
            case 1 where byte == UInt8(ascii: "\n"):
                return Secret(bytes: line[..<count])
            case 1:
                if count < maximumLength {
                    line[count] = byte
                    count += 1
                }
            case 0:
                return count > 0 ? Secret(bytes: line[..<count]) : nil
            default:
                guard errno == EINTR else { throw TerminalFailure("read the password") }
            }
        }
    }
}
