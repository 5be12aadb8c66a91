import DBusTransport
package import DeviceStorage
import Glibc
import Synchronization

/// The file in which services of this device find the keys that its tokens are checked with. Anybody may read it, and the broker alone writes it.
package struct KeyFile: Sendable {
    /// Its path.
    package let path: String

    package init(path: String) { self.path = path }

    /// `keys.json` in the directory that systemd has made for the service (`RuntimeDirectory=`); `nil` where it has made none.
    package static func path(environment: [String: String]) -> String? {
        runtimeDirectory(environment: environment).map { $0 + "/keys.json" }
    }

    /// The directory itself: the first, where there are several.
    package static func runtimeDirectory(environment: [String: String]) -> String? {
        let first = environment["RUNTIME_DIRECTORY"]?.split(separator: ":").first.map(String.init)
        return first.flatMap { $0.hasPrefix("/") ? $0 : nil }
    }

    /// Puts a new content in the place of the old one, so that a reader finds the one or the other. Blocks its thread for the file system.
    ///
    /// - Throws: ``StoreError``.
    package func write(_ text: String) throws(StoreError) {
        let new = path + ".new"
        unlink(new)
        // Nobody else may write to the directory; where somebody may, a link of theirs leads nowhere.
        let file = open(new, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0o644)
        guard file >= 0 else { throw failure() }
        // The umask of a service that keeps secrets takes the rights of others away.
        let bytes = Array((text + "\n").utf8)
        let isWritten = fchmod(file, 0o644) == 0 && Glibc.write(file, bytes, bytes.count) == bytes.count
        let problem = isWritten ? nil : failure()
        close(file)
        if let problem {
            unlink(new)
            throw problem
        }
        guard rename(new, path) == 0 else { throw failure() }
    }

    /// By `errno`.
    private func failure() -> StoreError {
        PrivateFiles.failure(errno, attempted: "give out the keys of tokens in \(path)", otherwise: .failed)
    }
}

/// What is wrong with the keys of this service, from before it serves anybody: whoever has a key says so, and the broker tells it in its status.
package final class KeyTroubles: Sendable {
    /// Which keys.
    package enum Keys: String, Sendable {
        /// Those that tokens are signed with.
        case tokens = "the keys of tokens"
        /// The one that seals what is kept of the organisation's provider.
        case records = "the key of records"
    }

    private struct State {
        var troubles: [Keys: String] = [:]
        var follower: (@Sendable ([String]) -> Void)?
        /// Whether a thread tells the follower, and whether there is something that it has not told yet.
        var (isTelling, isNews) = (false, false)

        var texts: [String] { troubles.map { "\($0.key.rawValue): \($0.value)" }.sorted() }

        /// What is to be told next, and to whom; `nil`: nothing, and nobody tells any more.
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

    /// - Parameter reason: with what helps; `nil`: all is in order.
    package func set(_ reason: String?, for keys: Keys) {
        state.withLock { $0.troubles[keys] = reason }
        tell()
    }

    /// Tells what is wrong, now and at each change: one after the other, the last one last. Where two threads make changes at once, one of them tells both.
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
