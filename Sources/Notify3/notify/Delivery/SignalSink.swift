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

    /// A caller may take its signal handler down after notify_cancel, so the token is looked at again right before.
    func notify(_ token: CInt) {
        if TokenTable.isValid(token) { kill(getpid(), signal) }
    }

    func end(_ token: CInt) {}
}
