import Basics
import DBus
import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Synchronization

/// Stands in for the screen program: it reports that it shows whatever the broker asks for.
final class TestScreen: Sendable {
    private let broker: BrokerAdministration
    private let hasAnswer = Atomic(false)
    private let task = Locked<Task<Void, Never>?>(nil)

    init(bus: Bus) throws(SharedDeviceError) {
        broker = try BrokerAdministration(bus: bus)
        let asking = Task { [broker, weak self] in
            var (shows, revision) = (ScreenContent.nothing, UInt64?.none)
            while !Task.isCancelled {
                do throws(SharedDeviceError) {
                    let answer = try await broker.screen(shows: shows, revision: revision, wait: .seconds(30))
                    (shows, revision) = (answer.show, answer.revision)
                    self?.hasAnswer.store(true, ordering: .relaxed)
                } catch {
                    // The broker is restarted, or does not know the manifest yet.
                    await Wait.moment()
                }
            }
        }
        task.withLock { $0 = asking }
    }

    deinit { task.withLock { $0?.cancel() } }

    /// Whether the broker takes this program for the screen.
    var isScreen: Bool { hasAnswer.load(ordering: .relaxed) }

    /// The number of the open session.
    func session() async throws(SharedDeviceError) -> UInt64? {
        try await broker.call(.getDeviceInformation, nil)["epoch"]?.unsignedValue
    }

    /// Signs in at the screen.
    ///
    /// - Returns: The number of the session.
    func signIn(_ user: String) async throws(SharedDeviceError) -> UInt64 {
        let credentials = PersonalCredentials.password(username: user, password: DeviceHost.password(of: user))
        return try await broker.signIn(credentials, as: BrokerProtocol.screenIdentifier, wait: .seconds(15)).epoch
    }
}
