import Glibc

/// A descriptor that the library has opened, with a mark of the file behind it.
///
/// Daemons close all descriptors from 3 on and use the numbers for files of their own. Before the library writes to a
/// descriptor, reads it or closes it, it checks that the number still means its file. The rest of a race remains: the
/// program may close it between the check and the use. The file must have an inode of its own, as sockets and pipes do;
/// all eventfds share one.
package struct OwnedDescriptor: Sendable, Hashable {
    /// The number, and above it the mark of the file. In one word, so that a forked child can read it without a lock.
    let bits: UInt64

    /// No descriptor.
    package static let none = OwnedDescriptor(bits: .max)

    init(bits: UInt64) { self.bits = bits }

    /// Takes a descriptor that was opened just now; ``none`` for a negative one.
    package init(_ descriptor: CInt) {
        guard descriptor >= 0, let mark = Self.mark(of: descriptor) else {
            self = .none
            return
        }
        bits = UInt64(mark) << 32 | UInt64(UInt32(bitPattern: descriptor))
    }

    /// The number; negative for ``none``.
    package var number: CInt { CInt(truncatingIfNeeded: bits) }

    /// Whether the number still means the file that the library opened. A system call that a signal handler may make.
    package var isIntact: Bool { number >= 0 && Self.mark(of: number) == UInt32(bits >> 32) }

    /// Closes it, unless the program has done so.
    package func close() { if isIntact { Glibc.close(number) } }

    private static func mark(of descriptor: CInt) -> UInt32? {
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { return nil }
        return UInt32(truncatingIfNeeded: UInt64(status.st_ino) &+ UInt64(status.st_dev) &* 0x9E37_79B9)
    }

    /// A pair of connected sockets that no program inherits; `nil`, with `errno` set, if the system grants none.
    static func pair(isBlocking: Bool = true) -> (OwnedDescriptor, OwnedDescriptor)? {
        var ends: (CInt, CInt) = (-1, -1)
        let kind = SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | (isBlocking ? 0 : SOCK_NONBLOCK.rawValue)
        let isMade = withUnsafeMutableBytes(of: &ends) { ends in
            socketpair(AF_UNIX, CInt(kind), 0, ends.assumingMemoryBound(to: CInt.self).baseAddress) == 0
        }
        return isMade ? (OwnedDescriptor(ends.0), OwnedDescriptor(ends.1)) : nil
    }
}
