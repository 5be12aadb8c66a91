import CLinux
import Dispatch
import Glibc

/// The signals that ask a program to end, as something to wait for. A program makes one of these, and keeps it.
///
/// The handlers write into an eventfd, which is there before them, so the process loses no signal: a dispatch source becomes
/// active later than the call that makes it, and one thread that does not block a signal is enough for a signalfd to miss it.
package struct EndSignals {
    private let stream: AsyncStream<Void>
    private let source: any DispatchSourceRead

    /// From here on the signals do not end the process by themselves. SIGINT and SIGHUP stay ignored in a program that was started so, as by
    /// `nohup`, or by a script in the background. SIGTERM is heard even then, because services are ended by it.
    ///
    /// - Throws: ``DBusError`` if the process has no descriptor left.
    package init(_ signals: [Int32] = [SIGTERM, SIGINT]) throws(DBusError) {
        // Never closed, because the handlers stay.
        let event = eventfd(0, CInt(EFD_CLOEXEC) | CInt(EFD_NONBLOCK))
        guard event >= 0 else {
            throw DBusError(
                .noResources,
                message: "eventfd failed: \(String(cString: strerror(errno)))",
                attempted: "wait for signals",
                remedy: "raise the limit of open files (ulimit -n)"
            )
        }
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

    /// Waits for the first of them, also where it has come before this call.
    package func first() async {
        for await _ in stream { return }
    }

    private static func handle(_ signal: Int32) {
        var action = sigaction()
        guard sigaction(signal, nil, &action) == 0 else { return }
        let present = unsafeBitCast(action.__sigaction_handler.sa_handler, to: Int.self)
        guard signal == SIGTERM || present != unsafeBitCast(SIG_IGN, to: Int.self) else { return }
        action = sigaction()
        action.sa_flags = SA_RESTART
        action.__sigaction_handler.sa_handler = { _ in
            // Nothing but system calls is allowed here, and the interrupted code reads its own `errno` afterwards.
            let code = errno
            eventfd_write(signalled, 1)
            errno = code
        }
        sigaction(signal, &action, nil)
    }
}

/// Where the handlers write. Unsafe: it is set before the first handler is, and never again.
nonisolated(unsafe) private var signalled: Int32 = -1
