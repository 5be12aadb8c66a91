import DBusTransport
import NotifyCenter
import NotifyCenterTestKit
import SharedDevice
import Synchronization

/// What may go wrong on a device. Faults of one app are ``DeviceApp``'s.
extension TestDevice {
    /// Kills the broker, as a crash would; it has ended on return.
    public func killBroker() async { await host.killBroker() }

    /// Starts the broker again; it serves on return. One that runs is killed first.
    ///
    /// - Throws: ``TestDeviceError/Code/deviceFailed``.
    public func restartBroker() async throws(TestDeviceError) {
        await host.killBroker()
        try await host.startBroker()
    }

    /// Kills the bus and starts it again, at the same address; all connections are lost.
    ///
    /// - Throws: ``TestDeviceError/Code/deviceFailed``.
    public func restartBus() throws(TestDeviceError) {
        host.log.add(DeviceEvent.busLane, .killed, "the bus is killed")
        do { try bus.restart() } catch {
            throw TestDeviceError(.deviceFailed, "the device's bus does not start again: \(error)")
        }
        host.log.add(DeviceEvent.busLane, .started, "the bus serves")
    }

    /// Posts the broker's broadcast from another connection. Nobody may act on it.
    ///
    /// - Throws: ``TestDeviceError/Code/deviceFailed`` where the bus does not take it.
    public func spoofBroadcast() async throws(TestDeviceError) {
        host.log.add(DeviceEvent.busLane, .spoofed, "somebody else posts the broker's broadcast")
        do { try DarwinNotifyCenter(bus: bus.bus).post(.sharedModeCurrentAccountChanged) } catch {
            throw TestDeviceError(.deviceFailed, "the broadcast could not be posted: \(error)")
        }
    }

    /// Has the app's next cleanup take at least `pause`: the app is stopped as soon as the broker's ledger says that it was told, and goes
    /// on after the pause. Works with any app; one that is done quicker than it can be stopped is stopped too late.
    ///
    /// - Throws: ``TestDeviceError/Code/notThere``.
    public func slowCleanup(of identifier: String, by pause: Duration) throws(TestDeviceError) {
        let app = try app(identifier)
        state.withLock { $0.slowCleanups[app.identifier] = pause }
    }

    /// Has the bus start an app by its ``TestApp/busName``, as the broker does where an app owes a cleanup.
    ///
    /// - Throws: ``TestDeviceError/Code/notThere`` where it has none, or the bus cannot.
    public func activate(_ identifier: String) async throws(TestDeviceError) {
        guard let name = try app(identifier).description.busName else {
            throw TestDeviceError(.notThere, "\(identifier) has no bus name")
        }
        let app = try app(identifier)
        let control = control
        // The bus answers when the name is taken, and an app need not take it: that it runs is enough.
        let request = Task { try await control.activate(name) }
        let deadline = ContinuousClock.now + .seconds(30)
        while !app.isRunning {
            guard deadline > .now, !Task.isCancelled else {
                request.cancel()
                let reason = await request.result
                throw TestDeviceError(.notThere, "the bus does not start \(identifier): \(reason)")
            }
            await Wait.moment()
        }
        host.log.add(identifier, .started, "is started by the bus")
    }
}
