import Cryptography
import Glibc

/// A password or another secret. Its bytes are wiped when the last reference goes, and its description hides them.
///
/// A `String` that it was made from is not wiped: Swift has no way to do that. Use ``init(bytes:)`` if the bytes are
/// available without a `String`.
///
/// Unchecked: the memory is written in `init`, wiped in `deinit`, and only read in between.
public final class Secret: @unchecked Sendable, CustomStringConvertible, CustomReflectable {
    /// The bytes, and a NUL for C.
    private let memory: UnsafeMutablePointer<UInt8>
    /// The number of bytes without the NUL.
    public let count: Int

    /// The secret with this text, in UTF-8. Canonically equivalent texts of different bytes are different secrets.
    public convenience init(_ text: String) { self.init(bytes: text.utf8) }

    /// The secret with a copy of these bytes. The caller wipes the original.
    public init(bytes: some Collection<UInt8>) {
        count = bytes.count
        memory = .allocate(capacity: count + 1)
        memory.initialize(repeating: 0, count: count + 1)
        for (offset, byte) in bytes.enumerated() { memory[offset] = byte }
    }

    deinit {
        explicit_bzero(memory, count + 1)
        memory.deallocate()
    }

    private var bytes: UnsafeBufferPointer<UInt8> { UnsafeBufferPointer(start: memory, count: count) }

    /// Whether C functions would take the secret for a shorter one.
    public var containsNUL: Bool { bytes.contains(0) }

    /// The number of Unicode code points: every byte that is not a continuation byte starts one.
    public var codePointCount: Int { bytes.count { $0 & 0b1100_0000 != 0b1000_0000 } }

    /// Whether the secret can be a badge's number: 4 to 128 printable bytes of ASCII.
    public var isBadgeNumber: Bool { (4...128).contains(count) && bytes.allSatisfy { (0x20...0x7E).contains($0) } }

    /// Whether the secret can be a PIN: 4 to 12 digits.
    public var isPIN: Bool { (4...12).contains(count) && bytes.allSatisfy { (0x30...0x39).contains($0) } }

    /// Compares the bytes in constant time.
    public func isEqual(to other: Secret) -> Bool { ConstantTime.areEqual(bytes, other.bytes) }

    /// A copy that is not wiped, for interfaces that only take texts.
    public var text: String { String(decoding: bytes, as: UTF8.self) }

    /// Calls `body` with the bytes, without the NUL. The pointer is valid until `body` returns.
    public func withBytes<Result>(_ body: (UnsafeBufferPointer<UInt8>) -> Result) -> Result { body(bytes) }

    /// Calls `body` with the bytes and a NUL after them. The pointer is valid until `body` returns.
    public func withCString<Result>(_ body: (UnsafePointer<CChar>) -> Result) -> Result {
        memory.withMemoryRebound(to: CChar.self, capacity: count + 1) { body($0) }
    }

    /// Hides the secret.
    public var description: String { "Secret(hidden)" }

    public var customMirror: Mirror { Mirror(self, children: [:]) }
}
