import FoundationEssentials
import Identity
import JSONWebSignature
import OpenIDConnect

/// A sign-in that somebody does in a browser of this device.
struct BrowserSignIn: Sendable {
    let flow: AuthorizationCodeFlow
    /// By the wall clock.
    let requestedAt: Date
    let scopes: Set<String>
    let only: ProviderRecord.Person?
}

/// The sign-ins that are under way, by their handles. Pure.
struct PendingSignIns {
    /// How many there may be.
    static let capacity = 8

    enum State {
        /// The provider is being asked.
        case beginning
        case browser(BrowserSignIn)
        /// Its answer is being checked.
        case completing
        /// With what came of it, as soon as something did.
        case deviceCode(Outcome?)
    }

    typealias Outcome = Result<ProviderSignIn, IdentityError>

    fileprivate struct Entry {
        var state: State
        /// Who carries it out, where that is not the caller.
        var task: Task<Void, Never>?
        /// When it is forgotten.
        var deadline: ContinuousClock.Instant
        var polledAt: ContinuousClock.Instant
    }

    private var entries: [String: Entry] = [:]

    var handles: [String] { Array(entries.keys) }

    /// 32 random bytes, in base64url.
    static func newHandle() -> String {
        var generator = SystemRandomNumberGenerator()
        return Base64URL.encode((0..<32).map { _ in UInt8.random(in: 0...255, using: &generator) })
    }

    /// Takes a place, until it is put in or removed.
    ///
    /// - Returns: `false` where there is none.
    mutating func reserve(_ handle: String, at now: ContinuousClock.Instant) -> Bool {
        entries = entries.filter { $0.value.endsByItself || now < $0.value.deadline }
        guard entries.count < Self.capacity else { return false }
        entries[handle] = Entry(
            state: .beginning,
            deadline: now + AuthorizationCodeFlow.lifetime,
            polledAt: now
        )
        return true
    }

    /// - Returns: `false` where it was cancelled meanwhile.
    mutating func put(_ state: State, _ handle: String) -> Bool {
        guard entries[handle] != nil else { return false }
        entries[handle]?.state = state
        return true
    }

    /// - Returns: `false` where it was cancelled meanwhile.
    mutating func attach(_ task: Task<Void, Never>, to handle: String) -> Bool {
        guard entries[handle] != nil else { return false }
        entries[handle]?.task = task
        return true
    }

    /// The sign-in in the browser, for one answer. It keeps its place until it is removed.
    mutating func take(_ handle: String) -> BrowserSignIn? {
        guard case .browser(let signIn)? = entries[handle]?.state else { return nil }
        entries[handle]?.state = .completing
        return signIn
    }

    /// Whether the provider's answer to it is being checked.
    func isCompleting(_ handle: String) -> Bool {
        if case .completing? = entries[handle]?.state { true } else { false }
    }

    /// When somebody last asked for it; `nil` where it is not there any more.
    func polledAt(_ handle: String) -> ContinuousClock.Instant? { entries[handle]?.polledAt }

    enum Poll {
        case unknown
        case pending
        case finished(Outcome)
    }

    /// Somebody asks what became of a sign-in by device code. A finished one is told once.
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

    /// A sign-in by device code has ended.
    ///
    /// - Returns: `false` where it was cancelled meanwhile.
    mutating func finish(_ handle: String, _ outcome: Outcome) -> Bool {
        guard case .deviceCode(nil)? = entries[handle]?.state else { return false }
        entries[handle]?.state = .deviceCode(outcome)
        return true
    }

    /// Its end. What came of it belongs to whoever removes it.
    mutating func remove(_ handle: String) -> (state: State, task: Task<Void, Never>?)? {
        entries.removeValue(forKey: handle).map { ($0.state, $0.task) }
    }
}

extension PendingSignIns.Entry {
    /// Whether somebody carries it out who removes it in time: whoever has signed in by then is not to be forgotten with their tokens.
    fileprivate var endsByItself: Bool {
        switch state {
        case .completing, .deviceCode: true
        case .beginning, .browser: false
        }
    }
}
