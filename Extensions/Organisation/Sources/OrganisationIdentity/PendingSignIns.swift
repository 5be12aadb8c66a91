import Cryptography
import FoundationEssentials
import Identity
import OpenIDConnect

/// A sign-in in a browser of this device.
struct BrowserSignIn: Sendable {
    let flow: AuthorizationCodeFlow
    /// Wall-clock time.
    let requestedAt: Date
    let scopes: Set<String>
    let only: ProviderRecord.Person?
}

/// The pending sign-ins by handle. Pure.
struct PendingSignIns {
    static let capacity = 8

    enum State {
        /// The request to the provider is in flight.
        case beginning
        case browser(BrowserSignIn)
        /// The provider's response is being checked.
        case completing
        /// The outcome is set once the sign-in has ended.
        case deviceCode(Outcome?)
    }

    typealias Outcome = Result<ProviderSignIn, IdentityError>

    fileprivate struct Entry {
        var state: State
        /// The task that runs the sign-in; `nil` if the caller runs it.
        var task: Task<Void, Never>?
        /// When the entry expires, unless its sign-in ends by itself (``endsByItself``).
        var deadline: ContinuousClock.Instant
        var polledAt: ContinuousClock.Instant
    }

    private var entries: [String: Entry] = [:]

    var handles: [String] { Array(entries.keys) }

    /// 32 random bytes, in base64url.
    static func newHandle() -> String { Base64URL.random(32) }

    /// Reserves an entry for a handle until ``put(_:_:)`` fills it or ``remove(_:)`` frees it. Returns `false` if all
    /// entries are taken.
    mutating func reserve(_ handle: String, at now: ContinuousClock.Instant) -> Bool {
        entries = entries.filter { $0.value.endsByItself || now < $0.value.deadline }
        guard entries.count < Self.capacity else { return false }
        entries[handle] = Entry(state: .beginning, deadline: now + AuthorizationCodeFlow.lifetime, polledAt: now)
        return true
    }

    /// - Returns: `false` if the sign-in was cancelled.
    mutating func put(_ state: State, _ handle: String) -> Bool {
        guard entries[handle] != nil else { return false }
        entries[handle]?.state = state
        return true
    }

    /// - Returns: `false` if the sign-in was cancelled.
    mutating func attach(_ task: Task<Void, Never>, to handle: String) -> Bool {
        guard entries[handle] != nil else { return false }
        entries[handle]?.task = task
        return true
    }

    /// Takes the browser sign-in once, to check the provider's response. The entry stays until it is removed.
    mutating func take(_ handle: String) -> BrowserSignIn? {
        guard case .browser(let signIn)? = entries[handle]?.state else { return nil }
        entries[handle]?.state = .completing
        return signIn
    }

    func isCompleting(_ handle: String) -> Bool {
        if case .completing? = entries[handle]?.state { true } else { false }
    }

    /// When the caller last polled; `nil` if the sign-in is no longer pending.
    func polledAt(_ handle: String) -> ContinuousClock.Instant? { entries[handle]?.polledAt }

    enum Poll {
        case unknown
        case pending
        case finished(Outcome)
    }

    /// Polls a sign-in by device code. The outcome is returned once, and then removed.
    mutating func poll(_ handle: String, at now: ContinuousClock.Instant) -> Poll {
        entries[handle]?.polledAt = now
        switch entries[handle]?.state {
        case .deviceCode(let outcome?):
            entries[handle] = nil
            return .finished(outcome)
        case .deviceCode(nil): return .pending
        case .beginning, .browser, .completing, nil: return .unknown
        }
    }

    /// Records the outcome of a sign-in by device code. Returns `false` if the sign-in was cancelled.
    mutating func finish(_ handle: String, _ outcome: Outcome) -> Bool {
        guard case .deviceCode(nil)? = entries[handle]?.state else { return false }
        entries[handle]?.state = .deviceCode(outcome)
        return true
    }

    /// Removes a sign-in. The caller takes over its outcome.
    mutating func remove(_ handle: String) -> (state: State, task: Task<Void, Never>?)? {
        entries.removeValue(forKey: handle).map { ($0.state, $0.task) }
    }
}

extension PendingSignIns.Entry {
    /// Whether a task or a caller ends this sign-in and removes it in time. Such an entry does not expire: the person
    /// may have signed in already, and the tokens would be lost.
    fileprivate var endsByItself: Bool {
        switch state {
        case .completing, .deviceCode: true
        case .beginning, .browser: false
        }
    }
}
