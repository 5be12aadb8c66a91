import DBusTransport
import Foundation
import Logging
import SharedDevice
import Synchronization

/// Which apps take part, by the configuration and the manifests that are in force.
final class Enrolment: Sendable {
    private struct Content {
        var configuration: ManagedConfiguration?
        var manifests = AppManifests()

        /// Without a valid configuration it is unknown whom the administrator keeps out, so only apps with a manifest take part.
        var eligibility: AppEligibility {
            configuration.map { AppEligibility($0, manifests) }
                ?? AppEligibility(requiresEnrolment: true, manifests: manifests.manifests)
        }
    }

    private let content = Locked(Content())
    private let log: Logger

    init(log: Logger) { self.log = log }

    /// - Parameter configuration: `nil` where none is valid.
    func use(_ configuration: ManagedConfiguration?) {
        update { $0.configuration = configuration }
    }

    func use(_ manifests: AppManifests) {
        for problem in manifests.problems { log.error("app manifest", metadata: ["problem": "\(problem)"]) }
        update { $0.manifests = manifests }
    }

    private func update(_ change: (inout Content) -> Void) {
        let warnings = content.withLock { content in
            change(&content)
            return content.eligibility.warnings
        }
        for warning in warnings { log.warning("apps", metadata: ["warning": "\(warning)"]) }
    }

    /// Who a caller is.
    ///
    /// - Throws: ``DeviceRefusal`` where it may not take part.
    func identify(
        _ claimed: String?,
        _ credentials: DBusConnection.PeerCredentials
    ) throws(DeviceRefusal) -> AppIdentity {
        let caller = Self.caller(claimed, credentials)
        switch content.withLock({ $0.eligibility }).decide(caller) {
        case .eligible(let identity): return identity
        case .refused(let refusal): throw .appNotEligible(refusal.description)
        }
    }

    /// The names that the app may have had before it had a manifest. Names that another program may still use are left out: this app must not
    /// settle what another one owes.
    func formerKeys(_ app: AppIdentity, _ credentials: DBusConnection.PeerCredentials) -> [String] {
        content.withLock { $0.eligibility }.formerKeys(
            of: app,
            executable: Self.executable(credentials),
            user: credentials.userID
        )
    }

    /// The identity of a caller that may no longer take part, so that it can still clean up; `nil` if it cannot be found.
    func identifyRefused(_ claimed: String?, _ credentials: DBusConnection.PeerCredentials) -> AppIdentity? {
        content.withLock { $0.eligibility }.identityOfRefused(Self.caller(claimed, credentials))
    }

    /// The name by which the bus starts the app.
    func busName(of app: String) -> String? {
        content.withLock { content in content.manifests.manifests.first { $0.identifier == app }?.busName }
    }

    private static func caller(_ claimed: String?, _ credentials: DBusConnection.PeerCredentials) -> AppCaller {
        AppCaller(
            identifier: claimed,
            executable: executable(credentials),
            user: credentials.userID
        )
    }

    /// The kernel marks the path of a program whose file was removed or replaced while it runs, as an update does. It is the same app.
    static func executable(_ credentials: DBusConnection.PeerCredentials) -> String {
        guard let path = credentials.executable else { return "a program that cannot be seen" }
        let mark = " (deleted)"
        return path.hasSuffix(mark) ? String(path.dropLast(mark.count)) : path
    }
}

/// The device's membership in an organisation.
extension DeviceBroker {
    /// The open session; `nil` where nobody is signed in.
    var openSession: (epoch: UInt64, startedAt: Date)? {
        guard state.account != nil, let session = ledger.sessions[state.epoch] else { return nil }
        return (state.epoch, session.startedAt)
    }

    /// Puts new rules in force. A signed-in account that they do not allow is signed out.
    ///
    /// - Throws: ``StoreError``: the account could not be signed out; the rules are in force all the same.
    package func use(requiresJoin: Bool, tenantIdentifier: String?) throws {
        configuredRules = DeviceRules(requiresJoin: requiresJoin, tenantIdentifier: tenantIdentifier)
        try apply(.rulesChanged, cause: "the managed configuration")
    }

    /// Joins the device to the organisation of the administrator whose name and password the request carries. Joining twice does no harm.
    ///
    /// - Parameter organization: its name, for display.
    /// - Returns: the organisation's tenant.
    /// - Throws: ``IdentityError``; ``DeviceRefusal`` where the user is no administrator, or the device is meant for another organisation or
    ///   joined to one; ``StoreError``. Nothing has changed then.
    package func join(_ request: SignInRequest, organization: String?) async throws -> String {
        let account = try await authenticateAdministrator(request)
        let tenant = account.tenantIdentifier.lowercased()
        if let enrolment {
            guard enrolment.tenantIdentifier == tenant else { throw DeviceRefusal.joinedElsewhere }
            return tenant
        }
        if let meant = configuredRules.tenantIdentifier, meant.lowercased() != tenant {
            throw DeviceRefusal.tenantMismatch
        }
        let enrolment = Membership(
            organization: organization,
            tenantIdentifier: tenant,
            joinedAt: surroundings.now(),
            subject: try store.subject(of: account)
        )
        try apply(.rulesChanged, enrolment: .join(enrolment), cause: "the device's joining")
        return tenant
    }

    /// Leaves the organisation, on the request of one of its administrators. The account that is signed in is signed out.
    ///
    /// - Throws: ``IdentityError``; ``DeviceRefusal`` where the user is no administrator of that organisation, or the device is not joined;
    ///   ``StoreError``. Nothing has changed then.
    package func leave(_ request: SignInRequest) async throws {
        let account = try await authenticateAdministrator(request)
        guard let enrolment else { throw DeviceRefusal.notJoined }
        guard enrolment.tenantIdentifier == account.tenantIdentifier.lowercased() else {
            throw DeviceRefusal.tenantMismatch
        }
        let subject = try store.subject(of: account)
        try apply(.left, enrolment: .leave(subject: subject), cause: "the device's leaving")
    }

    private func authenticateAdministrator(_ request: SignInRequest) async throws -> Account {
        let identity = try await provider.authenticate(request)
        // The provider's session served this request only.
        Task { [provider] in try? await provider.endSession(for: identity) }
        guard identity.isAdministrator else { throw DeviceRefusal.notAdministrator }
        return identity.account
    }
}

/// The methods that join the device to an organisation, and have it leave.
extension BrokerInterface {
    func join(_ fields: BrokerProtocol.Fields, caller: Callers.Caller) async throws -> BrokerProtocol.Fields {
        let tenant = try await broker.join(try request(fields), organization: status.current.organization)
        log.notice("joined", metadata: ["tenant": "\(tenant)", "caller": "\(caller.program)"])
        return ["tenant": .string(tenant)]
    }

    func leave(_ fields: BrokerProtocol.Fields, caller: Callers.Caller) async throws -> BrokerProtocol.Fields {
        try await broker.leave(try request(fields))
        log.notice("left", metadata: ["caller": "\(caller.program)"])
        return [:]
    }

    /// The name and the password of a request.
    func request(_ fields: BrokerProtocol.Fields) throws(BrokerProtocol.Malformed) -> SignInRequest {
        guard let username = fields["username"]?.stringValue else { throw BrokerProtocol.Malformed("username") }
        return SignInRequest(username: username, password: fields["password"]?.stringValue.map { Secret($0) })
    }
}
