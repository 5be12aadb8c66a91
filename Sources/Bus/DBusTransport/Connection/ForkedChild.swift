import Glibc
import Synchronization

/// Keeps the child of a fork from its parent's connections.
///
/// A child inherits the sockets, but not the thread that reads them; and it inherits locks that other threads of the parent held. What the
/// child wrote would mix with what its parent writes, and the bus would not see the parent's end while the child held a socket. So this type
/// makes each inherited socket a dead end in the child before `fork` returns, and a connection of the parent refuses to work there. A
/// connection that the child opens itself works.
enum ForkedChild {
    /// Rises with every fork that this process is the child of.
    static var generation: UInt { atomicGeneration.load(ordering: .relaxed) }

    private static let atomicGeneration = Atomic<UInt>(0)
    /// The sockets, and -1 in free places. If a process has more than 256 connections at a time, the rest are not cut off.
    private static let sockets = SocketTable()
    /// One end of a pair whose other end is closed: it reads as ended, and writing to it fails.
    private static let deadEnd = Atomic<CInt>(-1)
    private static let deadEndInode = Atomic<UInt64>(0)
    private static let isPrepared = Atomic<Bool>(false)

    /// Notes a socket until ``remove(_:)``.
    static func add(_ socket: CInt) {
        if !isPrepared.exchange(true, ordering: .acquiringAndReleasing) { prepare() }
        sockets.replace(-1, with: socket)
    }

    static func remove(_ socket: CInt) { sockets.replace(socket, with: -1) }

    private static func prepare() {
        _ = makeDeadEnd()
        pthread_atfork(nil, nil) { ForkedChild.begin() }
    }

    /// System calls that a signal handler may make, and plain stores. Negative where the system has no more descriptors.
    private static func makeDeadEnd() -> CInt {
        var ends: (CInt, CInt) = (-1, -1)
        let isMade = withUnsafeMutableBytes(of: &ends) { ends in
            socketpair(
                AF_UNIX,
                CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue),
                0,
                ends.assumingMemoryBound(to: CInt.self).baseAddress
            ) == 0
        }
        guard isMade else { return -1 }
        close(ends.1)
        var status = stat()
        guard fstat(ends.0, &status) == 0 else { return ends.0 }
        deadEndInode.store(UInt64(status.st_ino), ordering: .relaxed)
        deadEnd.store(ends.0, ordering: .releasing)
        return ends.0
    }

    /// The dead end; another one if this process has closed it, as services do with all that they inherit.
    private static func usableDeadEnd() -> CInt {
        let descriptor = deadEnd.load(ordering: .acquiring)
        var status = stat()
        let isIntact =
            descriptor >= 0 && fstat(descriptor, &status) == 0 && status.st_mode & S_IFMT == S_IFSOCK
            && UInt64(status.st_ino) == deadEndInode.load(ordering: .relaxed)
        return isIntact ? descriptor : makeDeadEnd()
    }

    /// In the child: system calls that a signal handler may make, and plain stores.
    private static func begin() {
        atomicGeneration.wrappingAdd(1, ordering: .relaxed)
        var deadEnd: CInt?
        for index in sockets.places {
            // Taken out: the child may close it and have another file under the number, which is then its own children's business.
            let socket = sockets.take(index)
            guard socket >= 0 else { continue }
            let end = deadEnd ?? usableDeadEnd()
            deadEnd = end
            if end >= 0, dup2(end, socket) >= 0 {
                _ = fcntl(socket, F_SETFD, FD_CLOEXEC)
            } else {
                close(socket)
            }
        }
    }

    private final class SocketTable: Sendable {
        let places = 0..<256
        // The pointer is constant, and what it points to atomic. Never given back: the table is the process's.
        nonisolated(unsafe) private let sockets: UnsafeMutablePointer<Atomic<CInt>>

        init() {
            sockets = .allocate(capacity: places.count)
            for index in places { (sockets + index).initialize(to: Atomic(-1)) }
        }

        func take(_ index: Int) -> CInt { sockets[index].exchange(-1, ordering: .acquiringAndReleasing) }

        func replace(_ old: CInt, with new: CInt) {
            for index in places {
                let (isDone, _) = sockets[index]
                    .compareExchange(expected: old, desired: new, ordering: .acquiringAndReleasing)
                if isDone { return }
            }
        }
    }
}
