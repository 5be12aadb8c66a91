import CLinux
import Dispatch
public import Glibc

/// The signals that ask a program to end, as an awaitable event. A program makes one instance and keeps it.
///
/// The handlers write into an eventfd that is open before they are installed, so no signal is lost. A dispatch source
/// for signals becomes active some time after its creation, and a signalfd misses a signal if any thread does not block
/// it.
public struct EndSignals {
    private let stream: AsyncStream<Void>
    private let source: any DispatchSourceRead

    /// Installs the handlers. From here on the signals do not end the process by themselves.
    ///
    /// SIGINT and SIGHUP stay ignored if the program was started with them ignored, for instance by `nohup` or in the
    /// background of a script. SIGTERM is handled even then, because services are stopped by it.
    public init(_ signals: [Int32] = [SIGTERM, SIGINT]) throws(OutOfDescriptors) {
        // Never closed, because the handlers stay.
        let event = eventfd(0, CInt(EFD_CLOEXEC) | CInt(EFD_NONBLOCK))
        guard event >= 0 else { throw OutOfDescriptors("wait for signals", call: "eventfd", error: errno) }
        let (stream, continuation) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
        self.stream = stream
        source = DispatchSource.makeReadSource(fileDescriptor: event, queue: .global())
        source.setEventHandler {
            var count: eventfd_t = 0
            _ = eventfd_read(event, &count)
            continuation.yield()
        }
        source.activate()
        signalled = event
        for signal in signals { Self.handle(signal) }
    }

    /// Waits for the first signal. Returns at once if it came before this call.
    public func first() async { for await _ in stream { return } }

    private static func handle(_ signal: Int32) {
        var action = sigaction()
        guard sigaction(signal, nil, &action) == 0 else { return }
        let present = unsafeBitCast(action.__sigaction_handler.sa_handler, to: Int.self)
        guard signal == SIGTERM || present != unsafeBitCast(SIG_IGN, to: Int.self) else { return }
        action = sigaction()
        action.sa_flags = SA_RESTART
        action.__sigaction_handler.sa_handler = { _ in
            // Only async-signal-safe calls are allowed here. The interrupted code may read its own `errno` afterwards.
            let code = errno
            eventfd_write(signalled, 1)
            errno = code
        }
        sigaction(signal, &action, nil)
    }
}

/// The eventfd of the handlers. Unsafe: it is set once, before the first handler is installed.
nonisolated(unsafe) private var signalled: Int32 = -1
