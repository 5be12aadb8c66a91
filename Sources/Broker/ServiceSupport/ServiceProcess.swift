import CLinux
import FoundationEssentials
import Glibc
package import Logging

/// What programs that run as services do alike: their memory is nobody else's, their log goes to standard error, and they say when they are ready and
/// when they end.
package struct ServiceProcess: Sendable {
    package let log: Logger
    private let output: LogOutput
    private let manager: ServiceManager?

    /// To be made before anything secret is read.
    ///
    /// - Parameter name: the program's, for its log.
    package init(_ name: String, level: LogLevel) {
        // Secrets of people who sign in are in memory for a while.
        CLinux_keepMemoryPrivate()
        var noCore = rlimit()
        setrlimit(__rlimit_resource_t(RLIMIT_CORE.rawValue), &noCore)
        // A journal that goes away ends nothing.
        signal(SIGPIPE, SIG_IGN)
        let environment = ProcessInfo.processInfo.environment
        output = LogOutput(environment: environment)
        log = output.logger(name, level: Logger.Level(rawValue: level.rawValue) ?? .info)
        manager = ServiceManager(environment: environment)
    }

    /// Says that the service is ready: a line on standard output, and the service manager is told.
    ///
    /// - Parameter isAlive: is asked again and again, on a thread of its own, for as long as the service manager watches.
    package func isReady(_ isAlive: @escaping @Sendable () -> Bool) {
        // Whoever started it may have closed the other end.
        _ = Array("ready\n".utf8).withUnsafeBytes { write(STDOUT_FILENO, $0.baseAddress, $0.count) }
        manager?.follow(isAlive) { [log] problem in
            log.warning(
                "the service manager is told again that the service is ready",
                metadata: ["reason": "\(problem)"]
            )
        }
    }

    /// Says that the service is about to end.
    package func isStopping() {
        guard let problem = manager?.tell("STOPPING=1") else { return }
        log.warning("the service manager does not hear that the service ends", metadata: ["reason": "\(problem)"])
    }

    /// Waits until what was logged is written, for a second at most.
    package func finish() { output.finish() }
}
