import DBusTransport
import Synchronization

/// What the managed configuration says beyond the mode, for whoever asks.
final class ConfigurationStatus: Sendable {
    struct Content: Sendable {
        var organization: String?
        /// Why the file as it is now is not in force.
        var problem: String?
    }

    private let content = Locked(Content())

    var current: Content { content.withLock { $0 } }

    func update(_ update: ManagedConfigurationUpdate) {
        content.withLock { content in
            content.problem = update.problem?.description
            guard let inForce = update.inForce else { return }
            content.organization =
                if case .present(let configuration) = inForce { configuration.organization } else { nil }
        }
    }
}
