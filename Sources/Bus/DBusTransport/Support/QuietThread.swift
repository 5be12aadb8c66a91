import CDBus
package import Glibc

/// Starts threads with all signals blocked, so that those to the process reach the app's own threads (architecture, D3).
package enum QuietThread {
    /// Runs `body` on a thread of this name; nobody waits for its end.
    ///
    /// - Returns: the thread; `nil`, with `errno` set, where the system grants none. Then `body` is not called.
    package static func start(_ name: StaticString, _ body: @escaping @Sendable () -> Void) -> pthread_t? {
        var all = sigset_t()
        var previous = sigset_t()
        sigfillset(&all)
        pthread_sigmask(SIG_SETMASK, &all, &previous)
        defer { pthread_sigmask(SIG_SETMASK, &previous, nil) }
        let work = Unmanaged.passRetained(Work(name, body))
        var thread = pthread_t()
        let start: @convention(c) (UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer? = { argument in
            if let argument { Unmanaged<Work>.fromOpaque(argument).takeRetainedValue().run() }
            return nil
        }
        let code = pthread_create(&thread, nil, start, work.toOpaque())
        guard code == 0 else {
            work.release()
            errno = code
            return nil
        }
        pthread_detach(thread)
        return thread
    }

    private final class Work: Sendable {
        private let name: StaticString
        private let body: @Sendable () -> Void

        init(_ name: StaticString, _ body: @escaping @Sendable () -> Void) {
            self.name = name
            self.body = body
        }

        func run() {
            CDBus_nameThisThread(UnsafeRawPointer(name.utf8Start).assumingMemoryBound(to: CChar.self))
            body()
        }
    }
}
