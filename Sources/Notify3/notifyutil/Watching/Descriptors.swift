import Basics
import CLinux
import Dispatch
import Glibc
import NotifyCenter

/// Reads tokens from a descriptor of notify(3): four bytes each, in network byte order.
struct TokenReader {
    /// The first bytes of a token that is not complete yet.
    private var pending: [UInt8] = []

    /// Returns the tokens that have arrived; `nil` if the descriptor was closed. Call this when it is readable.
    mutating func read(_ descriptor: CInt) -> [CInt]? {
        var buffer = [UInt8](repeating: 0, count: 4096)
        let count = Glibc.read(descriptor, &buffer, buffer.count)
        guard count > 0 else { return count < 0 && (errno == EINTR || errno == EAGAIN) ? [] : nil }
        return take(buffer[..<count])
    }

    mutating func take(_ bytes: some Collection<UInt8>) -> [CInt] {
        pending += bytes
        let complete = pending.count / 4 * 4
        let tokens = stride(from: 0, to: complete, by: 4).map { start in
            CInt(bitPattern: pending[start..<start + 4].reduce(0 as UInt32) { $0 << 8 | UInt32($1) })
        }
        pending.removeFirst(complete)
        return tokens
    }
}

/// A pipe to which the handlers of the kind `dispatch` write tokens, in the same form as notify(3).
final class TokenPipe: Sendable {
    /// The end for reading.
    let descriptor: CInt
    private let input: CInt
    let queue = DispatchQueue(label: "notifyutil")

    /// Returns `nil` if there are no descriptors left.
    init?() {
        var ends: [CInt] = [-1, -1]
        guard CLinux_pipe(&ends) == 0 else { return nil }
        (descriptor, input) = (ends[0], ends[1])
    }

    deinit {
        close(descriptor)
        close(input)
    }

    /// Writes a token. Call this on ``queue``. Blocks while the pipe is full.
    func add(_ token: CInt) {
        var bytes = token.bigEndian
        while write(input, &bytes, MemoryLayout.size(ofValue: bytes)) < 0, errno == EINTR {}
    }
}

/// The signals of the registrations, as a descriptor (signalfd(2)).
final class SignalDescriptor {
    let descriptor: CInt

    /// Blocks the signals for this thread and the threads that it starts from now on. Must come before the library
    /// starts its threads.
    ///
    /// - Throws: ``DBusError/Code/noResources`` if there are no descriptors left.
    init(_ signals: Set<CInt>) throws(DBusError) {
        var set = sigset_t()
        sigemptyset(&set)
        for signal in signals { sigaddset(&set, signal) }
        pthread_sigmask(SIG_BLOCK, &set, nil)
        descriptor = signalfd(-1, &set, CInt(SFD_CLOEXEC) | CInt(SFD_NONBLOCK))
        guard descriptor >= 0 else {
            throw DBusError(
                .noResources,
                message: "signalfd failed: \(String(cString: strerror(errno)))",
                attempted: "watch",
                remedy: "raise the limit of open files (ulimit -n)"
            )
        }
    }

    deinit { close(descriptor) }

    /// Returns the signals that have arrived, each once.
    func read() -> [CInt] {
        var signals: [CInt] = []
        var information = signalfd_siginfo()
        let size = MemoryLayout.size(ofValue: information)
        while Glibc.read(descriptor, &information, size) == size { signals.append(CInt(information.ssi_signo)) }
        return signals
    }
}

/// Sleeps even if signals arrive. Returns at once if the deadline is over.
func sleep(until deadline: ContinuousClock.Instant) {
    while ContinuousClock.now < deadline { poll(nil, 0, milliseconds(until: deadline)) }
}
