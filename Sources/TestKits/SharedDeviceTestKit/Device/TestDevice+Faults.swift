import DBus
import NotifyCenter
import NotifyCenterTestKit
import SharedDevice
import Synchronization

/// Faults of a device. ``DeviceApp`` has the faults of a single app.
extension TestDevice {
    /// Kills the broker, as a crash would. On return it has ended.
    public func killBroker() async { await host.killBroker() }

    /// Starts the broker again, and kills a running one first. On return it responds.
    ///
    /// - Throws: ``TestDeviceError/Code/deviceFailed``.
    public func restartBroker() async throws(TestDeviceError) {
        await host.killBroker()
        try await host.startBroker()
    }

    /// Kills the bus and starts it again, at the same address. All connections are lost.
    ///
    /// - Throws: ``TestDeviceError/Code/deviceFailed``.
    public func restartBus() throws(TestDeviceError) {
        host.log.add(DeviceEvent.busLane, .killed, "the bus is killed")
        do { try bus.restart() } catch {
            throw TestDeviceError(.deviceFailed, "the device's bus does not start again: \(error)")
        }
        host.log.add(DeviceEvent.busLane, .started, "the bus serves")
    }

    /// Posts the broker's broadcast from a connection other than the broker's. No app may act on it. After
    /// ``restartBus()`` it waits until that connection is restored.
    ///
    /// - Throws: ``TestDeviceError/Code/deviceFailed`` if the bus refuses the post or is not there.
    public func spoofBroadcast() async throws(TestDeviceError) {
        host.log.add(DeviceEvent.busLane, .spoofed, "another process posts the broker's broadcast")
        let center = DarwinNotifyCenter(bus: bus.bus)
        do {
            try await eventually("the connection is there", within: .seconds(30)) {
                do throws(DBusError) {
                    try center.post(.sharedModeCurrentAccountChanged)
                    return true
                } catch {
                    guard error.code == .disconnected else { throw error }
                    return false
                }
            }
        } catch {
            throw TestDeviceError(.deviceFailed, "the broadcast could not be posted: \(error)")
        }
    }

    /// Makes the app's next cleanup take at least `pause`: stops the app as soon as the broker's ledger says that it
    /// was told, and resumes it after the pause. It works with any app, unless the app finishes before it can be
    /// stopped.
    ///
    /// - Throws: ``TestDeviceError/Code/notThere``.
    public func slowCleanup(of identifier: String, by pause: Duration) throws(TestDeviceError) {
        let app = try app(identifier)
        state.withLock { $0.slowCleanups[app.identifier] = pause }
    }

    /// Makes the bus start an app by its ``TestApp/busName``, as the broker does for an app with a pending cleanup.
    ///
    /// - Throws: ``TestDeviceError/Code/notThere`` if the app has no bus name, or the bus cannot start it.
    public func activate(_ identifier: String) async throws(TestDeviceError) {
        guard let name = try app(identifier).description.busName else {
            throw TestDeviceError(.notThere, "\(identifier) has no bus name")
        }
        let app = try app(identifier)
        let control = control
        // The bus replies when the app owns the name. The app need not own it, so wait only until it runs.
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
