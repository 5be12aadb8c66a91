import Glibc

/// A descriptor that the library has opened, with an identifying mark of its file.
///
/// Daemons close all descriptors from 3 on and reuse the numbers. So the library checks that the number still means its
/// file before it writes to it, reads from it or closes it. A race remains: the program may close it between the check
/// and the use. The file must have a unique inode, as sockets and pipes do; all eventfds share one.
public struct OwnedDescriptor: Sendable, Hashable {
    /// The number in the low half, the mark in the high half: one word, which a forked child reads without a lock.
    public let bits: UInt64

    public static let none = OwnedDescriptor(bits: .max)

    public init(bits: UInt64) { self.bits = bits }

    /// Takes ownership of a newly opened descriptor; ``none`` if it is negative.
    public init(_ descriptor: CInt) {
        guard descriptor >= 0, let mark = Self.mark(of: descriptor) else {
            self = .none
            return
        }
        bits = UInt64(mark) << 32 | UInt64(UInt32(bitPattern: descriptor))
    }

    /// The number; negative for ``none``.
    public var number: CInt { CInt(truncatingIfNeeded: bits) }

    /// Whether the number still means the file that the library opened. Async-signal-safe.
    public var isIntact: Bool { number >= 0 && Self.mark(of: number) == UInt32(bits >> 32) }

    /// Closes the descriptor, unless the program has done so.
    public func close() { if isIntact { Glibc.close(number) } }

    private static func mark(of descriptor: CInt) -> UInt32? {
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { return nil }
        return UInt32(truncatingIfNeeded: UInt64(status.st_ino) &+ UInt64(status.st_dev) &* 0x9E37_79B9)
    }

    /// Returns connected sockets that child programs do not inherit; `nil`, with `errno` set, if there are none.
    public static func pair(isBlocking: Bool = true) -> (OwnedDescriptor, OwnedDescriptor)? {
        var ends: (CInt, CInt) = (-1, -1)
        let kind = SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | (isBlocking ? 0 : SOCK_NONBLOCK.rawValue)
        let isMade = withUnsafeMutableBytes(of: &ends) { ends in
            socketpair(AF_UNIX, CInt(kind), 0, ends.assumingMemoryBound(to: CInt.self).baseAddress) == 0
        }
        return isMade ? (OwnedDescriptor(ends.0), OwnedDescriptor(ends.1)) : nil
    }
}

/// The process or the system has no descriptor left.
public struct OutOfDescriptors: Error, CustomStringConvertible {
    public let attempted: String
    /// The system call and its error.
    public let message: String
    public let remedy = "raise the limit of open files (ulimit -n)"

    public init(_ attempted: String, call: StaticString, error: CInt) {
        self.attempted = attempted
        message = "\(call) failed: \(String(cString: strerror(error)))"
    }

    public var description: String { "could not \(attempted): \(message); \(remedy)" }
}

/// Descriptors 0 to 2. The library never occupies these numbers, even if the process was started without them:
/// otherwise text for standard error would go to the bus.
public enum StandardDescriptors {
    /// Runs `body`, which opens descriptors, while sockets hold the free numbers from 0 to 2.
    public static func leavingFree<Result>(_ body: () -> Result) -> Result {
        guard (0...2).contains(where: { fcntl($0, F_GETFD) < 0 }) else { return body() }
        var holders: [OwnedDescriptor] = []
        while true {
            let holder = OwnedDescriptor(socket(AF_UNIX, CInt(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0))
            guard 0...2 ~= holder.number else {
                holder.close()
                break
            }
            holders.append(holder)
        }
        defer { for holder in holders { holder.close() } }
        return body()
    }
}
