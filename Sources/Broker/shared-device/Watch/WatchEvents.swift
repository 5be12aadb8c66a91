import CLinux
import CommandParts
import Glibc

/// Keys, signals and responses of the broker. It is created before the first thread, because every thread has to block
/// the signals.
final class WatchEvents: Sendable {
    enum Event {
        case changed
        case keys([UInt8])
        case closed
        case signal(Int32)
        case time
    }

    private let signals: CInt
    private let wakes: CInt

    /// - Parameter hasScreen: Whether a terminal has to be restored before the program ends. Otherwise signals have
    ///   their usual effect, even while a write blocks.
    init(hasScreen: Bool) throws {
        var caught = sigset_t()
        sigemptyset(&caught)
        let ends = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP]
        for signal in hasScreen ? ends + [SIGWINCH] : [] where !Self.isIgnored(signal) { sigaddset(&caught, signal) }
        pthread_sigmask(SIG_BLOCK, &caught, nil)
        // Neither is ever closed: both are in use until the program ends.
        signals = signalfd(-1, &caught, CInt(SFD_CLOEXEC))
        wakes = eventfd(0, CInt(EFD_CLOEXEC) | CInt(EFD_NONBLOCK))
        guard signals >= 0, wakes >= 0 else {
            throw CommandFailure(
                EX_OSERR,
                "could not wait for signals: \(String(cString: strerror(errno))); raise the limit of open files"
            )
        }
    }

    /// Whether the program was started with the signal ignored, as nohup does. A blocked signal would still queue.
    private static func isIgnored(_ signal: Int32) -> Bool {
        var action = sigaction()
        guard sigaction(signal, nil, &action) == 0 else { return false }
        let handler = action.__sigaction_handler.sa_handler
        return unsafeBitCast(handler, to: Int.self) == unsafeBitCast(SIG_IGN, to: Int.self)
    }

    /// Requests a redraw, from any thread.
    @Sendable func wake() { eventfd_write(wakes, 1) }

    /// Waits on this thread, for `patience` milliseconds; a negative number means no timeout.
    func next(withKeys: Bool, patience: Int32) -> Event {
        var watched = [signals, wakes, withKeys ? STDIN_FILENO : -1].map {
            pollfd(fd: $0, events: Int16(POLLIN), revents: 0)
        }
        let count = poll(&watched, nfds_t(watched.count), patience)
        guard count > 0 else { return .time }
        if watched[0].revents != 0 {
            var information = signalfd_siginfo()
            let size = MemoryLayout<signalfd_siginfo>.size
            if read(signals, &information, size) == size { return .signal(Int32(information.ssi_signo)) }
        }
        if watched[2].revents != 0 {
            var bytes = [UInt8](repeating: 0, count: 64)
            let length = read(STDIN_FILENO, &bytes, bytes.count)
            return length > 0 ? .keys(Array(bytes.prefix(length))) : .closed
        }
        var woken: eventfd_t = 0
        eventfd_read(wakes, &woken)
        return .changed
    }

    /// Ends the program as the signal would without this object, or stops it until it is continued.
    static func obey(_ signal: Int32) {
        // Swift's runtime treats SIGQUIT as a crash, and starts a dialogue on the terminal.
        Glibc.signal(signal, SIG_DFL)
        raiseBlocked(signal)
    }
}
