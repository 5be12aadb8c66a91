import Glibc
package import Identity
package import SharedDevice

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

/// A terminal that does not show what is typed while a secret is asked for.
package struct QuietTerminal: Sendable {
    package let descriptor: CInt
    private let attributes: termios

    /// From here on ``restore()`` brings back the settings that the terminal has now.
    ///
    /// - Throws: ``TerminalFailure`` where the descriptor is no terminal.
    package init(_ descriptor: CInt) throws(TerminalFailure) {
        self.descriptor = descriptor
        var attributes = termios()
        guard tcgetattr(descriptor, &attributes) == 0 else { throw TerminalFailure("read the terminal's settings") }
        self.attributes = attributes
    }

    /// Shows nothing of what is typed from now on, but for the end of the line.
    package func silence() throws(TerminalFailure) {
        var silent = attributes
        silent.c_lflag &= ~tcflag_t(ECHO)
        silent.c_lflag |= tcflag_t(ECHONL | ICANON)
        // Text that was typed before the question does not answer it.
        guard tcsetattr(descriptor, TCSAFLUSH, &silent) == 0 else { throw TerminalFailure("silence the terminal") }
    }

    /// The settings of before; as often as somebody likes.
    package func restore() {
        var attributes = attributes
        tcsetattr(descriptor, TCSADRAIN, &attributes)
    }

    /// Writes the whole text.
    package static func write(_ text: String, to descriptor: CInt) throws(TerminalFailure) {
        var rest = Array(text.utf8)[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
            guard count >= 0 || errno == EINTR else { throw TerminalFailure("write to the terminal") }
            rest = rest.dropFirst(max(0, count))
        }
    }
}

/// What a terminal did not do.
package struct TerminalFailure: Error, Sendable, CustomStringConvertible {
    package let description: String

    /// With the reason that `errno` has.
    package init(_ attempted: String) {
        description = "could not \(attempted): \(String(cString: strerror(errno)))"
    }
}

extension SharedDeviceError.Code {
    /// The exit status of a command that fails so, of `<sysexits.h>`.
    package var exitStatus: CInt {
        switch self {
        case .brokerUnavailable, .providerUnavailable: EX_UNAVAILABLE
        case .providerMisconfigured: EX_CONFIG
        case .notPermitted, .authenticationFailed, .interactionRequired: EX_NOPERM
        case .tooManyAttempts, .cleanupPending, .loginExpired: EX_TEMPFAIL
        case .invalidRequest, .tenantMismatch, .deviceNotJoined, .noCurrentAccount, .currentAccountMismatch: EX_DATAERR
        default: EX_SOFTWARE
        }
    }
}
