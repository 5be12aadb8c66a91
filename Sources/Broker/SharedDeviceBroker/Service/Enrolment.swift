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

    /// What the app may have been called before it had a manifest. A name that another program may still go by is not among them: what
    /// that one owes is not this one's to settle.
    func formerKeys(_ app: AppIdentity, _ credentials: DBusConnection.PeerCredentials) -> [String] {
        content.withLock { $0.eligibility }.formerKeys(
            of: app,
            executable: Self.executable(credentials),
            user: credentials.userID
        )
    }

    /// Whom a caller is that may not take part any more, so that it can still clean up; `nil` where nobody can tell.
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
