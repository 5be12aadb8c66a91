import CLinux
import DBusTransport
import Dispatch
import Glibc
import Synchronization

/// A pipe whose read end the caller has: after a post, each token is written as 4 bytes in network byte order (Rules, a.7).
///
/// A reader that is slow loses none but repetitions: what a full pipe does not take waits, each token once, and is written when
/// there is room. This object keeps a read end of its own, so that the pipe has a reader also when the caller closed theirs, and
/// a write never raises SIGPIPE.
final class DescriptorChannel: NoticeSink {
    private struct State {
        /// Tokens that the pipe did not take, in order, each once.
        var waiting: [CInt] = []
        var waitingTokens: Set<CInt> = []
        /// Watches for room while tokens wait.
        var room: (any DispatchSourceWrite)?
        /// Nothing is written any more.
        var isRetired = false
        var isClosed = false
    }

    /// The caller's end, inherited across exec.
    let descriptor: CInt
    private let ownReadEnd: CInt
    /// Closed with its last user, because Dispatch may be looking at it after its source was cancelled.
    private let writeEnd: Descriptor
    private let state = Locked(State())

    /// Makes a pipe; `nil` where the system has no more descriptors.
    init?() {
        var ends: [CInt] = [-1, -1]
        guard CLinux_pipe(&ends) == 0 else { return nil }
        descriptor = dup(ends[0])
        (ownReadEnd, writeEnd) = (ends[0], Descriptor(ends[1]))
        guard descriptor >= 0 else {
            _ = Glibc.close(ends[0])
            return nil
        }
        // Of the write end alone: the caller's reads wait, unless the caller says otherwise.
        _ = fcntl(writeEnd.number, F_SETFL, O_NONBLOCK)
    }

    deinit { close() }

    /// Whether the number still stands for this pipe: a caller may have closed it, and another file have got it.
    var isIntact: Bool {
        var (own, callers) = (stat(), stat())
        return fstat(ownReadEnd, &own) == 0 && fstat(descriptor, &callers) == 0 && own.st_ino == callers.st_ino
            && own.st_dev == callers.st_dev
    }

    func notify(_ token: CInt) {
        state.withLock { state in
            guard !state.isRetired else { return }
            writeWaiting(&state)
            if !state.waiting.isEmpty || !write(token) {
                if state.waitingTokens.insert(token).inserted { state.waiting.append(token) }
                watchForRoom(&state)
            }
        }
    }

    func end(_ token: CInt) {
        state.withLock { state in
            if state.waitingTokens.remove(token) != nil { state.waiting.removeAll { $0 == token } }
        }
    }

    /// Whether it serves no more tokens.
    var isRetired: Bool { state.withLock { $0.isRetired } }

    /// With the last token.
    func retire() { state.withLock { $0.isRetired = true } }

    /// Closes the caller's end, and has the other one close with its last user.
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
        _ = Glibc.close(ownReadEnd)
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
        let written = state.waiting.prefix { write($0) }
        for token in written { state.waitingTokens.remove(token) }
        state.waiting.removeFirst(written.count)
    }

    /// All 4 bytes or none: less than PIPE_BUF (pipe(7)).
    private func write(_ token: CInt) -> Bool {
        withUnsafeBytes(of: token.bigEndian) { bytes in
            while true {
                if Glibc.write(writeEnd.number, bytes.baseAddress, bytes.count) == bytes.count { return true }
                guard errno == EINTR else { return false }
            }
        }
    }
}

/// An open descriptor; its end of life closes it.
private final class Descriptor: Sendable {
    let number: CInt

    init(_ number: CInt) { self.number = number }

    deinit { close(number) }
}
