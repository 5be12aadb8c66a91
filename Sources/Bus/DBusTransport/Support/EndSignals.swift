import Dispatch
import Glibc

/// SIGTERM and SIGINT, as something to wait for.
package struct EndSignals {
    private let stream: AsyncStream<Void>
    private let sources: [any DispatchSourceSignal]

    /// From here on the signals do not end the process by themselves.
    package init() {
        let (stream, continuation) = AsyncStream.makeStream(of: Void.self)
        self.stream = stream
        sources = [SIGTERM, SIGINT].map { number in
            signal(number, SIG_IGN)
            let source = DispatchSource.makeSignalSource(signal: number, queue: .global())
            source.setEventHandler { continuation.yield() }
            source.activate()
            return source
        }
    }

    package func first() async {
        for await _ in stream { return }
    }
}
