import DBusTransport
import Logging
import Synchronization

/// Which apps take part, by the configuration and the manifests that are in force.
final class Enrolment: Sendable {
    private struct Content {
        var configuration: ManagedConfiguration?
        var manifests = AppManifests()

        /// Without a configuration that makes sense, nobody knows whom the administrator wants to keep out.
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

    /// What the app may have been called before it had a manifest.
    func formerKeys(_ app: AppIdentity, _ credentials: DBusConnection.PeerCredentials) -> [String] {
        guard app.isEnrolled else { return [] }
        return [app.identifier, nil].map { AppEligibility.key(of: Self.caller($0, credentials)) }
    }

    /// The name by which the bus starts the app.
    func busName(of app: String) -> String? {
        content.withLock { content in content.manifests.manifests.first { $0.identifier == app }?.busName }
    }

    private static func caller(_ claimed: String?, _ credentials: DBusConnection.PeerCredentials) -> AppCaller {
        AppCaller(
            identifier: claimed,
            executable: credentials.executable ?? "a program that cannot be seen",
            user: credentials.userID
        )
    }
}
