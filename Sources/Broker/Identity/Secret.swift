import Cryptography
import Glibc

/// A password or another secret. Its bytes are wiped when the last reference goes, and its description hides them.
///
/// A `String` that it was made from is not wiped: Swift has no way to do that. Use ``init(bytes:)`` if the bytes are
/// available without a `String`.
///
/// Unchecked: the memory is written in `init`, wiped in `deinit`, and only read in between.
package final class Secret: @unchecked Sendable, CustomStringConvertible, CustomReflectable {
    /// The bytes, and a NUL for C.
    private let memory: UnsafeMutablePointer<UInt8>
    /// The number of bytes without the NUL.
    package let count: Int

    /// The secret with this text, in UTF-8. Canonically equivalent texts of different bytes are different secrets.
    package convenience init(_ text: String) {
        self.init(bytes: text.utf8)
    }

    /// The secret with a copy of these bytes. The caller wipes the original.
    package init(bytes: some Collection<UInt8>) {
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
    package var containsNUL: Bool { bytes.contains(0) }

    /// The number of Unicode code points: every byte that is not a continuation byte starts one.
    package var codePointCount: Int { bytes.count { $0 & 0b1100_0000 != 0b1000_0000 } }

    /// Compares the bytes in constant time.
    package func isEqual(to other: Secret) -> Bool { ConstantTime.areEqual(bytes, other.bytes) }

    /// A copy that is not wiped, for interfaces that only take texts.
    package var text: String { String(decoding: bytes, as: UTF8.self) }

    /// Calls `body` with the bytes, without the NUL. The pointer is valid until `body` returns.
    package func withBytes<Result>(_ body: (UnsafeBufferPointer<UInt8>) -> Result) -> Result { body(bytes) }

    /// Calls `body` with the bytes and a NUL after them. The pointer is valid until `body` returns.
    package func withCString<Result>(_ body: (UnsafePointer<CChar>) -> Result) -> Result {
        memory.withMemoryRebound(to: CChar.self, capacity: count + 1) { body($0) }
    }

    /// Hides the secret.
    package var description: String { "Secret(hidden)" }

    package var customMirror: Mirror { Mirror(self, children: [:]) }
}
