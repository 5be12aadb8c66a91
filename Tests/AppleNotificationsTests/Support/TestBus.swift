import DBusTransport
import Glibc
import NotifyCenter
import NotifyCenterTestKit
import Synchronization

/// The one bus of this test process: the centers that Apple's functions return are on the bus that the environment names when they
/// are first used.
enum TestBus {
    private static let running = Locked<PrivateBus?>(nil)

    /// Names the bus in the environment. Every suite asks for it before it uses a center.
    static let environment: [String: String] = {
        // As good as a failed test: without a bus there is nothing to test.
        let bus = try! PrivateBus()
        for (name, value) in bus.environment { setenv(name, value, 1) }
        running.withLock { $0 = bus }
        // The daemon ends with this process, and its folder too.
        atexit { TestBus.running.withLock { $0 = nil } }
        return bus.environment
    }()

    static func use() { _ = environment }
}
