import DBusTransport
import Glibc
import NotifyCenter
import Synchronization

/// The one bus of this test process, for what takes its bus from the environment: the centers that Apple's functions return, and
/// notify(3). Any suite that uses those asks for it first.
package enum ProcessBus {
    private static let running = Locked<PrivateBus?>(nil)

    /// Starts it and names it in the environment, once. It starts notifyd when somebody calls that, on dbus-daemon.
    package static let environment: [String: String] = {
        let options = PrivateBus.Options(services: ["org.notifycenter.Notifyd1": ChildProcess.built("notifyd")])
        // As good as a failed test: without a bus there is nothing to test.
        let bus = try! PrivateBus(options)
        for (name, value) in bus.environment { setenv(name, value, 1) }
        running.withLock { $0 = bus }
        // The daemon ends with this process, and its folder too.
        atexit { ProcessBus.running.withLock { $0 = nil } }
        return bus.environment
    }()

    /// Has it run.
    package static func use() { _ = environment }
}
