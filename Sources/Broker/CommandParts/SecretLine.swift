import Basics
import Glibc
public import Identity
public import SharedDevice

/// Reads a line of secret text. Only a `Secret` keeps it in memory.
public enum SecretLine {
    /// More than any password may have. A longer line is cut, and later refused for its length.
    private static let maximumLength = 4096

    /// Reads the bytes up to the end of the line, a line feed with or without a carriage return, and without this end;
    /// `nil` if the input ends before the first byte, or if `before`, which is called before each byte, returns false.
    public static func read(from descriptor: CInt, before: () throws -> Bool) throws -> Secret? {
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
                // A longer line is cut, so its last byte is not the carriage return.
                let hasReturn = count > 0 && count < maximumLength && line[count - 1] == UInt8(ascii: "\r")
                return Secret(bytes: line[..<(hasReturn ? count - 1 : count)])
            case 1:
                if count < maximumLength {
                    line[count] = byte
                    count += 1
                }
            case 0: return count > 0 ? Secret(bytes: line[..<count]) : nil
            default:
                guard errno == EINTR else { throw TerminalFailure("read the password") }
            }
        }
    }
}

/// A terminal that does not echo while a secret is typed.
public struct QuietTerminal: Sendable {
    public let descriptor: CInt
    private let attributes: termios

    /// Saves the terminal's current settings for ``restore()``.
    public init(_ descriptor: CInt) throws(TerminalFailure) {
        self.descriptor = descriptor
        var attributes = termios()
        guard tcgetattr(descriptor, &attributes) == 0 else { throw TerminalFailure("read the terminal's settings") }
        self.attributes = attributes
    }

    /// Stops the echo of typed text, except of the end of the line.
    public func silence() throws(TerminalFailure) {
        var silent = attributes
        silent.c_lflag &= ~tcflag_t(ECHO)
        silent.c_lflag |= tcflag_t(ECHONL | ICANON)
        // TCSAFLUSH discards text that was typed before the question.
        guard tcsetattr(descriptor, TCSAFLUSH, &silent) == 0 else { throw TerminalFailure("silence the terminal") }
    }

    /// Restores the saved terminal settings. Idempotent.
    public func restore() {
        var attributes = attributes
        tcsetattr(descriptor, TCSADRAIN, &attributes)
    }

    public static func write(_ text: String, to descriptor: CInt) throws(TerminalFailure) {
        errno = writeAll(text, to: descriptor)
        if errno != 0 { throw TerminalFailure("write to the terminal") }
    }
}

public struct TerminalFailure: HasExitStatus, Sendable, CustomStringConvertible {
    public var exitStatus: CInt { EX_IOERR }
    public let description: String

    /// Describes the failure with the reason in `errno`.
    public init(_ attempted: String) { description = "could not \(attempted): \(String(cString: strerror(errno)))" }
}

extension SharedDeviceError: HasExitStatus {
    public var exitStatus: CInt {
        switch code {
        case .brokerUnavailable, .providerUnavailable: EX_UNAVAILABLE
        case .providerMisconfigured: EX_CONFIG
        case .notPermitted, .authenticationFailed, .userNotAllowed, .interactionRequired: EX_NOPERM
        case .tooManyAttempts, .cleanupPending, .loginExpired: EX_TEMPFAIL
        case .invalidRequest, .tenantMismatch, .deviceNotJoined, .noCurrentAccount, .currentAccountMismatch: EX_DATAERR
        default: EX_SOFTWARE
        }
    }
}
