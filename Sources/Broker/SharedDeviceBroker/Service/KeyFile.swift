import Basics
import DBus
package import DeviceStorage
import Dispatch
import Glibc
import Synchronization

/// The file with the keys that services on this device verify its tokens with. Everyone may read it; only the broker
/// writes it.
package struct KeyFile: Sendable {
    package let path: String

    package init(path: String) { self.path = path }

    /// `keys.json` in the directory that systemd created for the service (`RuntimeDirectory=`); `nil` without one.
    package static func path(environment: [String: String]) -> String? {
        runtimeDirectory(environment: environment).map { $0 + "/keys.json" }
    }

    /// The runtime directory; the first one if there are several.
    package static func runtimeDirectory(environment: [String: String]) -> String? {
        let first = environment["RUNTIME_DIRECTORY"]?.split(separator: ":").first.map(String.init)
        return first.flatMap { $0.hasPrefix("/") ? $0 : nil }
    }

    /// Replaces the content atomically: a reader finds the old or the new one. Blocks its thread for the file system.
    package func write(_ text: String) throws(StoreError) {
        do throws(AtomicFile.Failure) {
            try AtomicFile(path: path, readers: .everyone).write((text + "\n").utf8)
        } catch {
            throw StoreError(system: error.code, attempted: "give out the keys of tokens in \(path)")
        }
    }
}

/// The problems with the keys of this service, which the status shows. Exists before the service, for the keys' owners.
package final class KeyTroubles: Sendable {
    package enum Keys: String, Sendable {
        /// The keys that sign tokens.
        case tokens = "the keys of tokens"
        /// The key that seals the stored records of the organisation's provider.
        case records = "the key of records"
    }

    private struct State {
        var troubles: [Keys: String] = [:]
        var follower: (@Sendable ([String]) -> Void)?
    }

    private let state = Locked(State())
    /// Makes the changes and calls the follower, so that the calls come one at a time and in order.
    private let queue = DispatchQueue(label: "SharedDeviceBroker.keys")

    package init() {}

    /// - Parameter reason: The problem with its remedy; `nil` if there is none.
    package func set(_ reason: String?, for keys: Keys) {
        queue.async { [self] in change { $0.troubles[keys] = reason } }
    }

    /// Calls the follower now, and on its own queue at each change.
    func follow(_ follower: @escaping @Sendable ([String]) -> Void) {
        queue.sync { change { $0.follower = follower } }
    }

    private func change(_ change: (inout State) -> Void) {
        let state = state.withLock { state in
            change(&state)
            return state
        }
        state.follower?(state.troubles.map { "\($0.key.rawValue): \($0.value)" }.sorted())
    }
}
