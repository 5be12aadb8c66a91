import Basics
import DBus
import DBusService
import DeviceConfiguration
import Glibc
import Identity
import OpenIDConnect
import Synchronization

/// The part of `shared-device provider check` in this process. It uses this process's secret, authorities and network
/// access, so that what works here works for a sign-in.
final class CheckMethod: Sendable {
    private let connection: DBusConnection
    private let current: CurrentProvider
    private let logouts: LogoutListener
    private let signals: SignalsReceiver
    private let isUnderWay = Locked(false)

    init(connection: DBusConnection, current: CurrentProvider, logouts: LogoutListener, signals: SignalsReceiver) {
        self.connection = connection
        self.current = current
        self.logouts = logouts
        self.signals = signals
    }

    var method: DBusInterface.Method {
        DBusInterface.Method(IdentityProtocol.checkMethod, out: [.init("answer", "a{sv}")], maximumBodyBytes: 0) {
            [self] call in
            guard await isAdministrator(call.sender) else {
                throw MethodFailure(
                    name: "org.freedesktop.DBus.Error.AccessDenied",
                    message: "only an administrator of this device may have its provider checked; run as root"
                )
            }
            let isFirst = isUnderWay.withLock { isUnderWay in
                defer { isUnderWay = true }
                return !isUnderWay
            }
            guard isFirst else {
                throw IdentityError(.busy, "a check is in progress already; wait for its end").failure
            }
            defer { isUnderWay.withLock { $0 = false } }
            do throws(IdentityError) {
                return [.fields(ProviderCheckStep.fields(try await check()))]
            } catch {
                throw error.failure
            }
        }
    }

    /// Whether the sender is root or this process's user, who administers the broker on a private bus.
    private func isAdministrator(_ sender: String) async -> Bool {
        guard let user = try? await connection.credentials(of: sender).userID else { return false }
        return user == 0 || user == geteuid()
    }

    private func check() async throws(IdentityError) -> [ProviderCheckStep] {
        _ = try current.provider.get()
        guard let client = current.client, let settings = current.settings else { return [] }
        // Without configured ports, any port will do.
        let port = settings.loopbackPorts.ports.first ?? 49_152
        let steps = await client.check(redirect: "http://127.0.0.1:\(port)/callback", scopes: settings.scopes)
        let logouts = await logouts.state
        let heard: ProviderCheckStep? =
            if let logouts { await client.checkLogouts(at: logouts.address, problem: logouts.problem) } else { nil }
        return steps + [heard, await signals.check()].compactMap { $0 }
    }
}
