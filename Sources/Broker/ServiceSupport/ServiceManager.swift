import DBusTransport
import Glibc

/// The service manager that started this process, as sd_notify(3) reaches it: datagrams to the socket that `NOTIFY_SOCKET` names.
package struct ServiceManager: Sendable {
    private let address: sockaddr_un
    private let length: socklen_t
    /// How long the service manager waits for a sign of life before it ends the process; `nil` where it does not wait for any.
    package let watchdog: Duration?

    /// - Parameter environment: this process's.
    /// - Returns: `nil` where no service manager asks to be told.
    package init?(environment: [String: String]) {
        guard let path = environment["NOTIFY_SOCKET"], path.hasPrefix("/") || path.hasPrefix("@") else { return nil }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        // “@” stands for the zero byte that an abstract name begins with.
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

    /// Tells it one of the words of sd_notify(3), and never waits: a service manager that does not read has a queue that is soon full.
    ///
    /// - Returns: the reason if it cannot be told now; `nil` if it was.
    package func tell(_ word: String) -> String? {
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

    /// Tells from a thread of its own that the service is ready, again and again until the service manager has it, and then sends signs of
    /// life for as long as `isAlive` says so: three times in the time that the service manager waits, so that one that is lost ends nothing.
    /// Once `isAlive` does not return, or says no, the service manager starts the service anew. Where it waits for no sign, none is sent.
    ///
    /// - Parameter failed: is given the reason, once, if the service manager does not have it at once that the service is ready.
    package func follow(_ isAlive: @escaping @Sendable () -> Bool, failed: @escaping @Sendable (String) -> Void) {
        let thread = QuietThread.start("watchdog") { [self] in
            if let problem = tell("READY=1") {
                failed(problem)
                while tell("READY=1") != nil { Self.sleep(.milliseconds(500)) }
            }
            guard let watchdog else { return }
            while true {
                // One that finds no room is followed by another.
                if isAlive() { _ = tell("WATCHDOG=1") }
                Self.sleep(watchdog / 3)
            }
        }
        if thread == nil { failed("no thread: \(String(cString: strerror(errno)))") }
    }

    private static func sleep(_ duration: Duration) {
        let (seconds, attoseconds) = duration.components
        var time = timespec(tv_sec: Int(seconds), tv_nsec: Int(attoseconds / 1_000_000_000))
        // The thread blocks all signals, so that nothing interrupts it.
        nanosleep(&time, nil)
    }
}
