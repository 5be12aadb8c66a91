import Glibc

/// Waits for signals on a thread of its own, because all that may be called in a signal handler is too little to report an event.
enum SignalThread {
    /// Blocks the signals for this thread and those that it starts from now on. To be done before the library starts its own.
    static func block(_ signals: Set<CInt>) {
        var set = set(signals)
        pthread_sigmask(SIG_BLOCK, &set, nil)
    }

    /// Calls `handler` on that thread for each of the signals that arrives, for ever.
    static func start(_ signals: Set<CInt>, handler: @escaping @Sendable (CInt) -> Void) {
        final class Work {
            let signals: Set<CInt>
            let handler: @Sendable (CInt) -> Void

            init(_ signals: Set<CInt>, _ handler: @escaping @Sendable (CInt) -> Void) {
                (self.signals, self.handler) = (signals, handler)
            }
        }
        var thread = pthread_t()
        let work = Unmanaged.passRetained(Work(signals, handler))
        let failure = pthread_create(
            &thread,
            nil,
            { context in
                guard let context else { return nil }
                let work = Unmanaged<Work>.fromOpaque(context).takeRetainedValue()
                var set = SignalThread.set(work.signals)
                while true {
                    var signal: CInt = 0
                    if sigwait(&set, &signal) == 0 { work.handler(signal) }
                }
            },
            work.toOpaque()
        )
        guard failure == 0 else {
            Output.error.write("notifyutil: no thread for signals: \(String(cString: strerror(failure)))\n")
            exit(ExitStatus.failed.rawValue)
        }
    }

    private static func set(_ signals: Set<CInt>) -> sigset_t {
        var set = sigset_t()
        sigemptyset(&set)
        for signal in signals { sigaddset(&set, signal) }
        return set
    }
}
