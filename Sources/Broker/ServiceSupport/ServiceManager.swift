import Basics
import DBus
import Glibc

/// The service manager that started this process, reached as in sd_notify(3): by datagrams to the socket in
/// `NOTIFY_SOCKET`.
public struct ServiceManager: Sendable {
    private let address: sockaddr_un
    private let length: socklen_t
    /// The watchdog's timeout, after which the service manager ends a silent process; `nil` without a watchdog.
    public let watchdog: Duration?

    /// Returns `nil` if no service manager asks for notifications.
    public init?(environment: [String: String]) {
        guard let path = environment["NOTIFY_SOCKET"], path.hasPrefix("/") || path.hasPrefix("@") else { return nil }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        // “@” stands for the zero byte at the start of an abstract name.
        let bytes = path.hasPrefix("@") ? [0] + Array(path.utf8.dropFirst()) : Array(path.utf8)
        let capacity = MemoryLayout.size(ofValue: address.sun_path)
        guard bytes.count < capacity else { return nil }
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: bytes) }
        self.address = address
        length = socklen_t(MemoryLayout<sockaddr_un>.size - capacity + bytes.count)
        let isForMe = environment["WATCHDOG_PID"].map { $0 == "\(getpid())" } ?? true
        watchdog = environment["WATCHDOG_USEC"].flatMap(Int64.init).flatMap { microseconds in
            isForMe && microseconds > 0 ? .microseconds(microseconds) : nil
        }
    }

    /// Sends a message of sd_notify(3). Never blocks: the service manager's queue may be full. Returns the reason if it
    /// cannot be sent now.
    public func tell(_ word: String) -> String? {
        let descriptor = socket(AF_UNIX, CInt(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { return "no socket: \(String(cString: strerror(errno)))" }
        defer { close(descriptor) }
        let bytes = Array(word.utf8)
        let sent = withUnsafePointer(to: address) { address in
            address.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                sendto(descriptor, bytes, bytes.count, CInt(MSG_NOSIGNAL) | CInt(MSG_DONTWAIT), $0, length)
            }
        }
        return sent == bytes.count ? nil : String(cString: strerror(errno))
    }

    /// Reports on its own thread that the service is ready, until the service manager accepts the message. With a
    /// watchdog, it then sends signs of life, three per timeout, so that one may be lost. If `isAlive` blocks or
    /// returns `false`, the service manager restarts the service.
    ///
    /// - Parameter failed: Called once, with the reason, if the first report of readiness fails or there is no thread.
    public func follow(_ isAlive: @escaping @Sendable () -> Bool, failed: @escaping @Sendable (String) -> Void) {
        let thread = QuietThread.start("watchdog") { [self] in
            if let problem = tell("READY=1") {
                failed("\(problem); trying again")
                while tell("READY=1") != nil { Self.sleep(.milliseconds(500)) }
            }
            guard let watchdog else { return }
            while true {
                // If the queue is full, this sign is lost; another follows.
                if isAlive() { _ = tell("WATCHDOG=1") }
                Self.sleep(watchdog / 3)
            }
        }
        if thread == nil {
            failed("no thread: \(String(cString: strerror(errno))); raise the limit of processes (ulimit -u)")
        }
    }

    private static func sleep(_ duration: Duration) {
        // The thread blocks signals, so nothing interrupts the sleep.
        usleep(useconds_t(clamping: Int64(duration / .microseconds(1))))
    }
}
