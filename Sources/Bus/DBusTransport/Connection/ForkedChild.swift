import CLinux
import Glibc
import Synchronization

/// Keeps the child of a fork from its parent's connections.
///
/// A child inherits the sockets, but not the thread that reads them; and it inherits locks that other threads of the
/// parent held. What the child wrote would mix with what its parent writes, and the bus would not see the parent's
/// end while the child held a socket. So this type makes each inherited socket a dead end in the child before `fork`
/// returns, and no connection works there, neither an inherited nor a new one: until it calls exec, the child of a
/// process that has used a bus posts by ``ForkedPoster``, and does nothing else on a bus.
package enum ForkedChild {
    /// Rises with every fork that this process is the child of, from the one of a process that had used a bus.
    static var generation: UInt { CLinux_forkGeneration() }

    /// Whether this process is the forked child of one that had used a bus.
    package static var isCurrent: Bool { generation > 0 }

    /// Whether it was forked when another thread, or an interrupted function, was inside libdbus, whose locks may be
    /// held for ever.
    static var isTorn: Bool { CLinux_isForkTorn() != 0 }

    /// Notes that this process uses a bus. Called before the first lock is taken for it.
    ///
    /// - Returns: ``isCurrent``.
    package static func useBus() -> Bool { CLinux_useBus() > 0 }

    /// - Throws: ``DBusError/Code/closed`` in a forked child.
    package static func check(_ attempted: @autoclosure () -> String) throws(DBusError) {
        if useBus() { throw .forked(attempted()) }
    }

    /// The process that made something, for what must not be touched in a forked child.
    package struct Process: Sendable {
        private let generation = ForkedChild.generation

        package init() {}

        /// Whether it is this process.
        package var isCurrent: Bool { generation == ForkedChild.generation }
    }

    /// Does what happens in every forked child by itself, for one that was made without fork(3).
    package static func notice() { if CLinux_noticeFork() != 0 { begin() } }

    /// The sockets, and no descriptor in free places. If a process has more than 256 connections at a time, the rest
    /// are not cut off.
    private static let sockets = SocketTable()
    /// One end of a pair whose other end is closed: it reads as ended, and writing to it fails.
    private static let deadEnd = Atomic<UInt64>(OwnedDescriptor.none.bits)
    private static let isPrepared = Atomic<Bool>(false)

    /// Notes a socket until ``remove(_:)``.
    static func add(_ socket: OwnedDescriptor) {
        if !isPrepared.exchange(true, ordering: .acquiringAndReleasing) {
            prepare()
            ProcessExit.prepare()
            ForkedPoster.rehearse()
        }
        sockets.replace(.none, with: socket)
    }

    static func remove(_ socket: OwnedDescriptor) { sockets.replace(socket, with: .none) }

    /// Whether the condition holds for all sockets. Takes no lock and no memory.
    static func allSockets(satisfy condition: (OwnedDescriptor) -> Bool) -> Bool {
        sockets.places.allSatisfy { index in
            let socket = sockets.look(index)
            return socket == .none || condition(socket)
        }
    }

    private static func prepare() {
        _ = StandardDescriptors.leavingFree { makeDeadEnd() }
        pthread_atfork(nil, nil) { ForkedChild.begin() }
    }

    /// System calls that a signal handler may make, and plain stores. ``OwnedDescriptor/none`` if the system has no
    /// more descriptors.
    private static func makeDeadEnd() -> OwnedDescriptor {
        guard let (end, other) = OwnedDescriptor.pair() else { return .none }
        other.close()
        deadEnd.store(end.bits, ordering: .releasing)
        return end
    }

    /// The dead end; another one if this process has closed it, as services do with all that they inherit.
    private static func usableDeadEnd() -> OwnedDescriptor {
        let end = OwnedDescriptor(bits: deadEnd.load(ordering: .acquiring))
        return end.isIntact ? end : makeDeadEnd()
    }

    /// In the child: system calls that a signal handler may make, and plain stores.
    private static func begin() {
        ProcessExit.unsentSockets.store(0, ordering: .relaxed)
        var deadEnd: OwnedDescriptor?
        for index in sockets.places {
            // Taken out: the child may close it and have another file under the number, which is then its own
            // children's business.
            let socket = sockets.take(index)
            // The program may have closed it and opened a file of its own before the fork.
            guard socket.isIntact else { continue }
            let end = deadEnd ?? usableDeadEnd()
            deadEnd = end
            if end.number >= 0, dup2(end.number, socket.number) >= 0 {
                _ = fcntl(socket.number, F_SETFD, FD_CLOEXEC)
            } else {
                close(socket.number)
            }
        }
    }

    private final class SocketTable: Sendable {
        let places = 0..<256
        // The pointer is constant, and what it points to atomic. Never given back: the table is the process's.
        nonisolated(unsafe) private let sockets: UnsafeMutablePointer<Atomic<UInt64>>

        init() {
            sockets = .allocate(capacity: places.count)
            for index in places { (sockets + index).initialize(to: Atomic(OwnedDescriptor.none.bits)) }
        }

        func look(_ index: Int) -> OwnedDescriptor {
            OwnedDescriptor(bits: sockets[index].load(ordering: .acquiring))
        }

        func take(_ index: Int) -> OwnedDescriptor {
            OwnedDescriptor(
                bits: sockets[index].exchange(OwnedDescriptor.none.bits, ordering: .acquiringAndReleasing)
            )
        }

        func replace(_ old: OwnedDescriptor, with new: OwnedDescriptor) {
            for index in places {
                let (isDone, _) = sockets[index]
                    .compareExchange(expected: old.bits, desired: new.bits, ordering: .acquiringAndReleasing)
                if isDone { return }
            }
        }
    }
}

/// Calls libdbus where it may take one of its global locks. A fork of another thread waits meanwhile: the child would
/// find the lock held by a thread that is not there. `body` waits for nothing but locks of ``BusSocket``, which are
/// taken here.
@inline(__always)
func onLibdbus<Result: ~Copyable, Failure: Error>(_ body: () throws(Failure) -> Result) throws(Failure) -> Result {
    CLinux_holdOffFork(CLINUX_CALL)
    defer { CLinux_allowFork(CLINUX_CALL) }
    return try body()
}
