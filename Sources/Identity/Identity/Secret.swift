import Cryptography
import Glibc

/// A password on its way from the person to the check, or another secret. It shows itself in no log, and its bytes are
/// wiped when the last reference goes.
///
/// A `String` that it was made from is not wiped: Swift gives no way to. Where the bytes can be had without one, use
/// ``init(bytes:)``.
///
/// Unchecked: the memory is written in `init` and wiped in `deinit`, and only read between the two.
package final class Secret: @unchecked Sendable, CustomStringConvertible, CustomReflectable {
    /// The bytes, and a NUL for C.
    private let memory: UnsafeMutablePointer<UInt8>
    /// The number of bytes without the NUL.
    package let count: Int

    /// The secret with this text, in UTF-8. Texts that look alike but are composed differently are different secrets.
    package convenience init(_ text: String) {
        self.init(bytes: text.utf8)
    }

    /// The secret of these bytes, which are copied; wiping the original is the caller's.
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

    /// Whether a C function would take the secret for a shorter one.
    package var containsNUL: Bool { bytes.contains(0) }

    /// The number of Unicode's code points: the bytes that continue none.
    package var codePointCount: Int { bytes.count { $0 & 0b1100_0000 != 0b1000_0000 } }

    /// Whether both are the same bytes.
    package func isEqual(to other: Secret) -> Bool { ConstantTime.areEqual(bytes, other.bytes) }

    /// A copy that is not wiped, for where only texts travel.
    package var text: String { String(decoding: bytes, as: UTF8.self) }

    /// Calls `body` with the bytes, without the NUL. The pointer is valid until `body` returns.
    package func withBytes<Result>(_ body: (UnsafeBufferPointer<UInt8>) -> Result) -> Result { body(bytes) }

    /// Calls `body` with the bytes and a NUL after them. The pointer is valid until `body` returns.
    package func withCString<Result>(_ body: (UnsafePointer<CChar>) -> Result) -> Result {
        memory.withMemoryRebound(to: CChar.self, capacity: count + 1) { body($0) }
    }

    /// Not the secret.
    package var description: String { "Secret(hidden)" }

    /// Not the secret either.
    package var customMirror: Mirror { Mirror(self, children: [:]) }
}
