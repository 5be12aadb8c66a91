import DBusTransport
import Foundation
import Glibc
import Logging
import NotifyCenter
import Synchronization

/// Puts the administrator's ``SessionPolicy`` in force: who may sign in is the broker's to decide; the clock and the screen end sessions
/// from here.
final class SessionLife: Sendable {
    private let broker: DeviceBroker
    private let watch: SignOutWatch
    private let policy = Locked(SessionPolicy())
    private let login = Locked<LoginWatch?>(nil)
    private let loginBus: Bus
    private let scope: LoginSessions.Scope
    private let log: Logger

    /// - Parameters:
    ///   - directory: the state directory.
    ///   - bus: the bus that the broker serves. On the machine's bus it is the machine's broker, and minds the seat `seat0`; otherwise its
    ///     user's.
    ///   - loginBus: where logind is.
    init(broker: DeviceBroker, directory: String, bus: Bus, loginBus: Bus, log: Logger) {
        self.broker = broker
        self.loginBus = loginBus
        self.log = log
        scope = bus == .system ? .seat("seat0") : .user(geteuid())
        watch = SignOutWatch(broker: broker, directory: directory, log: log)
    }

    var endSessionURL: String? { policy.withLock { $0.endSessionURL } }

    /// - Throws: ``StoreError`` where the account that the policy does not allow could not be signed out.
    func use(_ policy: SessionPolicy) async throws {
        self.policy.withLock { $0 = policy }
        try await broker.use(requiresJoin: policy.requiresJoin, tenantIdentifier: policy.tenantIdentifier)
        await watch.use(policy.schedule)
        let followsLogin = policy.endsAtScreenLock || policy.endsAtLogout
        let ended = login.withLock { login -> LoginWatch? in
            // Built once, and only where it is wanted: a device without logind is not asked for it.
            if followsLogin, login == nil { login = makeLoginWatch() }
            guard !followsLogin else { return nil }
            defer { login = nil }
            return login
        }
        withExtendedLifetime(ended) {}
    }

    /// A session has begun or ended.
    func sessionChanged() { Task { [watch] in await watch.look() } }

    func noteActivity() async { await watch.noteActivity() }

    private func makeLoginWatch() -> LoginWatch {
        LoginWatch(bus: loginBus, scope: scope, log: log) { [weak self] event in await self?.heard(event) }
    }

    private func heard(_ event: LoginSessions.Event) async {
        let policy = policy.withLock { $0 }
        guard event == .locked ? policy.endsAtScreenLock : policy.endsAtLogout else { return }
        guard let session = await broker.openSession else { return }
        while !Task.isCancelled {
            do {
                _ = try await broker.signOut(nil, session: session.epoch, cause: event.rawValue)
                return log.notice("signed out automatically", metadata: ["reason": "\(event.rawValue)"])
            } catch is DeviceRefusal {
                // It is over already.
                return
            } catch {
                log.error("not signed out yet", metadata: ["reason": "\(error)"])
                try? await Task.sleep(for: .seconds(2))
            }
        }
    }
}

/// What the administrator wants of sessions: who may have one, and when it ends by itself.
package struct SessionPolicy: Sendable, Equatable {
    /// Whether the device has to be joined to its organisation before anybody signs in.
    package var requiresJoin = false
    /// The tenant whose users may sign in on a device that is not joined; `nil` means any tenant.
    package var tenantIdentifier: String?
    /// When the clock ends a session.
    package var schedule = SignOutSchedule.Settings()
    /// Whether locking the screen signs out.
    package var endsAtScreenLock = false
    /// Whether the end of the login session signs out.
    package var endsAtLogout = false
    /// The identity provider's end-session page, for the browsers of those who sign out (OpenID Connect RP-Initiated Logout 1.0, section
    /// 2), with whatever query the administrator gives it.
    package var endSessionURL: String?

    package init() {}

    /// What the managed configuration says of it.
    package init(_ configuration: ManagedConfiguration) {
        requiresJoin = configuration.requiresJoin
        tenantIdentifier = configuration.tenantIdentifier
        schedule.inactivity = configuration.automaticSignOut.inactivity
        schedule.shiftEnds = Set(configuration.automaticSignOut.shiftEnds.map { $0.hour * 60 + $0.minute })
        endsAtScreenLock = configuration.automaticSignOut.onScreenLock
        endsAtLogout = configuration.automaticSignOut.onLogout
        endSessionURL = configuration.endSessionURL?.absoluteString
    }
}
