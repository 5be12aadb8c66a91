import CLinux
import FoundationEssentials
import Glibc
public import Logging

/// What services share: private memory, a log on standard error, and reports when they are ready and when they end.
public struct ServiceProcess: Sendable {
    public let log: Logger
    private let output: LogOutput
    private let manager: ServiceManager?

    /// Create it before any secret is read. The name is for its log.
    public init(_ name: String, level: LogLevel) {
        // The memory contains secrets of people who sign in.
        CLinux_keepMemoryPrivate()
        var noCore = rlimit()
        setrlimit(__rlimit_resource_t(RLIMIT_CORE.rawValue), &noCore)
        // A journal that goes away must not end the service.
        signal(SIGPIPE, SIG_IGN)
        let environment = ProcessInfo.processInfo.environment
        output = LogOutput(environment: environment)
        log = output.logger(name, level: Logger.Level(rawValue: level.rawValue) ?? .info)
        manager = ServiceManager(environment: environment)
    }

    /// Reports that the service is ready: with a line on standard output, and to the service manager.
    ///
    /// - Parameter isAlive: Called repeatedly on its own thread while the service manager watches.
    public func isReady(_ isAlive: @escaping @Sendable () -> Bool) {
        // The error is ignored, because the parent may have closed the pipe.
        _ = Array("ready\n".utf8).withUnsafeBytes { write(STDOUT_FILENO, $0.baseAddress, $0.count) }
        manager?.follow(isAlive) { [log] problem in
            let message: Logger.Message = "could not tell the service manager that the service is ready"
            log.warning(message, metadata: ["reason": "\(problem)"])
        }
    }

    public func isStopping() {
        guard let problem = manager?.tell("STOPPING=1") else { return }
        log.warning("could not tell the service manager that the service ends", metadata: ["reason": "\(problem)"])
    }

    /// Waits until the log is written, for a second at most.
    public func finish() { output.finish() }
}
