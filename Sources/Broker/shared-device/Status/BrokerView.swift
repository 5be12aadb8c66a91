import DBusTransport
import SharedDevice
import SharedDeviceBroker

/// What the broker adds to what the database says; all of it may be missing.
struct BrokerView {
    private(set) var information: BrokerProtocol.Fields?
    /// The apps that have a process on the bus.
    private(set) var running: Set<String>?
    /// Why the broker gave no answer.
    private(set) var problem: String?

    init(_ bus: BusOptions) {
        do throws(SharedDeviceError) {
            let administration = try bus.connect()
            let attempted = "ask the broker"
            information = try administration.callAndWait(.getDeviceInformation, nil, attempted: attempted)
            let answer = try administration.callAndWait(.getRunningApps, attempted: attempted)
            running = answer["apps"]?.stringsValue.map { Set($0) }
        } catch {
            problem = error.message
        }
    }
}
