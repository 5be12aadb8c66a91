import Glibc

/// Sends the process a signal. The system chooses a thread that does not block it; the library's own block all.
final class SignalSink: NoticeSink {
    private let signal: CInt

    /// `nil` for what is no signal.
    init?(_ signal: CInt) {
        // Asked of the C library, which keeps some real-time signals to itself: sent to the process, they would end it.
        var action = sigaction()
        guard sigaction(signal, nil, &action) == 0 else { return nil }
        self.signal = signal
    }

    func notify(_ token: CInt) { kill(getpid(), signal) }

    func end(_ token: CInt) {}
}
