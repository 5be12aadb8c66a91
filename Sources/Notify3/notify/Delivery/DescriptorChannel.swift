import Basics
import CLinux
import DBus
import Dispatch
import Glibc
import Synchronization

/// A pipe whose read end the caller has. After a post the library writes each token as 4 bytes in network byte order
/// (Rules, a.7).
///
/// A slow reader loses only repetitions: when the pipe is full, each token waits once, and is written when there is
/// room. This object has its own read end, so that the pipe has a reader even after the caller has closed the other
/// one, and a write never raises SIGPIPE.
final class DescriptorChannel: NoticeSink {
    private struct State {
        /// The tokens that it serves.
        var tokens: Set<CInt> = []
        /// The tokens for which the pipe had no room, and the number of each in `order`.
        var waiting: [CInt: UInt64] = [:]
        /// In the order of arrival. An element whose number is not in `waiting` has ended.
        var order: [(token: CInt, number: UInt64)] = []
        var nextNumber: UInt64 = 0

        mutating func keep(_ token: CInt) {
            guard waiting[token] == nil else { return }
            waiting[token] = nextNumber
            order.append((token, nextNumber))
            nextNumber += 1
        }

        /// Removes a token. Searches the order once for many ended tokens, not for each.
        mutating func remove(_ token: CInt) {
            guard waiting.removeValue(forKey: token) != nil, order.count > 2 * waiting.count + 16 else { return }
            order.removeAll { waiting[$0.token] != $0.number }
        }
        /// Watches for room while tokens wait.
        var room: (any DispatchSourceWrite)?
        /// Whether the channel has ended and does not write any longer.
        var isRetired = false
        var isClosed = false
    }

    /// The caller's end. It is inherited across exec.
    let descriptor: CInt
    private let ownReadEnd: OwnedDescriptor
    /// Closed when its last user is released, because Dispatch may use it even after its source was cancelled.
    private let writeEnd: Descriptor
    private let state = PosixLocked(State())

    /// Makes a pipe. Returns `nil` if the system has no descriptors left.
    init?() {
        var ends: [CInt] = [-1, -1]
        guard CLinux_pipe(&ends) == 0 else { return nil }
        descriptor = dup(ends[0])
        (ownReadEnd, writeEnd) = (OwnedDescriptor(ends[0]), Descriptor(ends[1]))
        guard descriptor >= 0 else {
            _ = Glibc.close(ends[0])
            return nil
        }
        // Only the write end does not block. The caller's reads block, unless the caller changes that.
        _ = fcntl(writeEnd.number, F_SETFL, O_NONBLOCK)
    }

    deinit { close() }

    /// Whether the number still belongs to this pipe. The caller may have closed it, and another file may have the
    /// number now.
    var isIntact: Bool {
        var (own, callers) = (stat(), stat())
        return ownReadEnd.isIntact && fstat(ownReadEnd.number, &own) == 0 && fstat(descriptor, &callers) == 0
            && own.st_ino == callers.st_ino && own.st_dev == callers.st_dev
    }

    func notify(_ token: CInt) {
        state.withLock { state in
            guard !state.isRetired else { return }
            writeWaiting(&state)
            if !state.waiting.isEmpty || !write(token) {
                state.keep(token)
                watchForRoom(&state)
            }
        }
    }

    func end(_ token: CInt) { state.withLock { $0.remove(token) } }

    /// Whether it accepts no further tokens.
    var isRetired: Bool { state.withLock { $0.isRetired } }

    /// Begins to serve a token.
    func begin(_ token: CInt) { state.withLock { _ = $0.tokens.insert(token) } }

    /// Ceases to serve a token. Retires, and returns true, if it was the last one.
    func leave(_ token: CInt) -> Bool {
        state.withLock { state in
            guard state.tokens.remove(token) != nil, state.tokens.isEmpty else { return false }
            state.isRetired = true
            return true
        }
    }

    /// Closes the caller's end. The write end closes when its last user is released.
    func close() {
        let (isFirst, room) = state.withLock { state -> (Bool, (any DispatchSourceWrite)?) in
            guard !state.isClosed else { return (false, nil) }
            state.isRetired = true
            state.isClosed = true
            defer { state.room = nil }
            return (true, state.room)
        }
        guard isFirst else { return }
        if isIntact { _ = Glibc.close(descriptor) }
        ownReadEnd.close()
        room?.cancel()
    }

    private func watchForRoom(_ state: inout State) {
        guard state.room == nil else { return }
        let source = DispatchSource.makeWriteSource(fileDescriptor: writeEnd.number, queue: .global())
        source.setEventHandler { [weak self] in self?.hasRoom() }
        source.setCancelHandler { [writeEnd] in withExtendedLifetime(writeEnd) {} }
        state.room = source
        source.resume()
    }

    private func hasRoom() {
        let finished = state.withLock { state -> (any DispatchSourceWrite)? in
            guard !state.isRetired else { return nil }
            writeWaiting(&state)
            guard state.waiting.isEmpty else { return nil }
            defer { state.room = nil }
            return state.room
        }
        finished?.cancel()
    }

    private func writeWaiting(_ state: inout State) {
        var done = 0
        for (token, number) in state.order {
            if state.waiting[token] == number {
                guard write(token) else { break }
                state.waiting[token] = nil
            }
            done += 1
        }
        state.order.removeFirst(done)
    }

    /// Writes all 4 bytes or none, because they are fewer than PIPE_BUF (pipe(7)).
    private func write(_ token: CInt) -> Bool {
        // The program may have closed the write end and reused its number. Then the token is lost, and nothing waits
        // for room.
        guard writeEnd.isIntact else { return true }
        return withUnsafeBytes(of: token.bigEndian) { bytes in
            while true {
                if Glibc.write(writeEnd.number, bytes.baseAddress, bytes.count) == bytes.count { return true }
                guard errno == EINTR else { return false }
            }
        }
    }
}

/// An open descriptor. Its release closes it, unless the program has done so.
private final class Descriptor: Sendable {
    private let descriptor: OwnedDescriptor
    var number: CInt { descriptor.number }
    /// Whether the number still belongs to it.
    var isIntact: Bool { descriptor.isIntact }

    init(_ number: CInt) { descriptor = OwnedDescriptor(number) }

    deinit { descriptor.close() }
}
