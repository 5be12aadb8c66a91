import CLinux
import Glibc

/// What the command waits for: keys, signals, and answers of the broker. Made before the first thread is started, because each of them has to block
/// the signals.
final class WatchEvents: Sendable {
    enum Event {
        case changed
        case keys([UInt8])
        /// Standard input has ended.
        case closed
        case signal(Int32)
        /// The time is over.
        case time
    }

    private let signals: CInt
    private let wakes: CInt

    /// - Parameter hasScreen: whether a terminal is to be put in order before the program ends. Otherwise signals end it as they end any, also
    ///   while nobody reads what it writes.
    /// - Throws: ``CommandFailure`` where no descriptor is left.
    init(hasScreen: Bool) throws {
        var caught = sigset_t()
        sigemptyset(&caught)
        let ends = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP]
        for signal in hasScreen ? ends + [SIGWINCH] : [] where !Self.isIgnored(signal) { sigaddset(&caught, signal) }
        pthread_sigmask(SIG_BLOCK, &caught, nil)
        // Neither is closed: both are for as long as the program runs.
        signals = signalfd(-1, &caught, CInt(SFD_CLOEXEC))
        wakes = eventfd(0, CInt(EFD_CLOEXEC) | CInt(EFD_NONBLOCK))
        guard signals >= 0, wakes >= 0 else {
            throw CommandFailure(
                status: EX_OSERR,
                description:
                    "could not wait for signals: \(String(cString: strerror(errno))); raise the limit of open files"
            )
        }
    }

    /// Whether whoever started the program made it ignore the signal, as nohup does. The kernel would queue a signal that is blocked all the same.
    private static func isIgnored(_ signal: Int32) -> Bool {
        var action = sigaction()
        guard sigaction(signal, nil, &action) == 0 else { return false }
        let handler = action.__sigaction_handler.sa_handler
        return unsafeBitCast(handler, to: Int.self) == unsafeBitCast(SIG_IGN, to: Int.self)
    }

    /// Something is to be shown. From any thread.
    @Sendable func wake() { eventfd_write(wakes, 1) }

    /// Waits on this thread.
    ///
    /// - Parameter patience: in milliseconds; negative means without end.
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

    /// Ends the program as the signal would have without this object, or stops it until it is told to go on.
    static func obey(_ signal: Int32) {
        // Swift's runtime takes SIGQUIT for a crash, and asks the terminal what to do about it.
        Glibc.signal(signal, SIG_DFL)
        var one = sigset_t()
        sigemptyset(&one)
        sigaddset(&one, signal)
        raise(signal)
        pthread_sigmask(SIG_UNBLOCK, &one, nil)
        pthread_sigmask(SIG_BLOCK, &one, nil)
    }
}
