import Glibc

/// Sends the process a signal. The system chooses a thread that does not block it; the library's own block all.
final class SignalSink: NoticeSink {
    private let signal: CInt

    /// `nil` for what is no signal.
    init?(_ signal: CInt) {
        guard signal > 0, signal <= Self.highest else { return nil }
        self.signal = signal
    }

    /// The last real-time signal; glibc keeps two of them to itself at the other end.
    private static let highest: CInt = 64

    func notify(_ token: CInt) { kill(getpid(), signal) }

    func end(_ token: CInt) {}
}
