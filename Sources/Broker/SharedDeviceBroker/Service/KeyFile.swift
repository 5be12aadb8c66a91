import Basics
import DBus
package import DeviceStorage
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
            throw PrivateFiles.failure(
                error.code,
                attempted: "give out the keys of tokens in \(path)",
                otherwise: .failed
            )
        }
    }
}

/// The problems with the keys of this service. It exists before the service starts: each owner of a key reports its
/// problems here, and the broker shows them in its status.
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
        /// Whether a thread is calling the follower, and whether there is a change that it has not passed on yet.
        var (isTelling, isNews) = (false, false)

        var texts: [String] { troubles.map { "\($0.key.rawValue): \($0.value)" }.sorted() }

        /// The next call to make; `nil` if there is no news, which ends the turn of the calling thread.
        mutating func takeNews() -> (follower: (@Sendable ([String]) -> Void)?, texts: [String])? {
            guard isNews else {
                isTelling = false
                return nil
            }
            isNews = false
            return (follower, texts)
        }
    }

    private let state = Locked(State())

    package init() {}

    /// - Parameter reason: The problem with its remedy; `nil` if there is none.
    package func set(_ reason: String?, for keys: Keys) {
        state.withLock { $0.troubles[keys] = reason }
        tell()
    }

    /// Calls the follower now and at each change, one call at a time, in order. If two threads make changes at once,
    /// one of them makes both calls.
    func follow(_ follower: @escaping @Sendable ([String]) -> Void) {
        state.withLock { $0.follower = follower }
        tell()
    }

    private func tell() {
        let isMine = state.withLock { state in
            state.isNews = true
            defer { state.isTelling = true }
            return !state.isTelling
        }
        guard isMine else { return }
        while let (follower, texts) = state.withLock({ $0.takeNews() }) { follower?(texts) }
    }
}
