import DeviceConfiguration
import FoundationEssentials
@_spi(Extensions) import SharedDevice

/// The lock of the present session: its person has to authenticate before the screen shows the session again.
struct SessionLock: Sendable, Equatable {
    let began: Duration
    /// Why the session is locked. It is also why the session ends if no screen program shows the lock.
    let cause: String
    /// Whether a screen program has shown the lock.
    var isShown = false
    /// Since when no screen program shows the lock; `nil` while one does.
    var missingSince: Duration?
    /// How often a password or PIN of the session's person was wrong.
    var failures = 0

    /// How many wrong passwords and PINs of the session's person end the session.
    static let mostFailures = 5

    /// What follows from another wrong password or PIN.
    var failed: Decision {
        var lock = self
        lock.failures += 1
        return lock.failures < Self.mostFailures
            ? .lock(lock) : .end(cause: "\(Self.mostFailures) wrong passwords or PINs")
    }
}

/// The screen program: it shows the warning before the end of a session, the lock, and the sign-in.
///
/// The newest connection of the program is the screen. A session is locked only while this connection shows the lock;
/// otherwise the session ends, so that it never stays open on a screen that anyone can use.
struct ScreenLock: Sendable {
    /// The connection of the screen program; `nil` if there is none.
    private var screen: String?
    /// Connections of the program that another one has replaced. They are not the screen again before that one ends.
    private var replaced: Set<String> = []
    /// What should be on the screen.
    private(set) var content = ScreenAnswer(revision: 0, show: .nothing)
    /// The session of an earlier run of the broker, until the configuration says whether it is locked.
    private var resumed: UInt64?

    /// How long the screen program may take to show a new lock.
    static let showPatience = Duration.seconds(5)
    /// How long no screen program may show the lock: while one restarts, or does not ask.
    static let lossPatience = Duration.seconds(10)
    /// How long a request waits at most while the session is locked. After it, a program that hangs is noticed.
    static let lockedWait = Duration.seconds(10)
    /// The same for a request that does not show the lock, so that its program can soon say that it does.
    static let unshownWait = Duration.milliseconds(500)

    /// - Parameter session: The open session of an earlier run of the broker; `nil` if there is none.
    init(resuming session: UInt64?) { resumed = session }

    /// Whether a screen program is connected.
    var isThere: Bool { screen != nil }

    // MARK: The lock

    /// - Parameter cause: The reason of the sign-out that the lock replaces.
    func lock(because cause: String, _ facts: Facts) -> [Decision] {
        guard isThere else { return [.end(cause: "\(cause), and no screen program is there to lock it")] }
        return [.lock(SessionLock(began: facts.now.uptime, cause: cause, missingSince: facts.now.uptime))]
    }

    /// If the first configuration locks sessions, a session of an earlier run of the broker begins as locked: nothing
    /// on the disk says whether it was. If only the configuration before the start locked sessions, the session ends.
    mutating func configure(_ facts: Facts) -> [Decision] {
        guard facts.policy.isConfigured else { return [] }
        let session = resumed
        resumed = nil
        let isResumed = session == facts.device.epoch && facts.device.account != nil
        guard facts.policy.schedule.locked != nil else {
            let isLocked = facts.isLocked || (isResumed && facts.policy.lockedBefore)
            return isLocked ? [.end(cause: "the managed configuration")] : []
        }
        guard isResumed, !facts.isLocked else { return [] }
        let now = facts.now.uptime
        return [.lock(SessionLock(began: now, cause: "the start of the broker", isShown: true, missingSince: now))]
    }

    /// Whether no configuration says yet whether the open session of an earlier run is locked.
    func isUndecided(_ facts: Facts) -> Bool { resumed == facts.device.epoch && facts.device.account != nil }

    func next(_ facts: Facts) -> Duration? {
        guard let lock = facts.lock, let since = lock.missingSince else { return nil }
        return since + (lock.isShown ? Self.lossPatience : Self.showPatience)
    }

    func passTime(_ facts: Facts) -> [Decision] {
        guard let lock = facts.lock, let next = next(facts), next <= facts.now.uptime else { return [] }
        return [
            .end(
                cause: lock.isShown
                    ? "no screen program shows the lock" : "\(lock.cause), and the screen was not locked"
            )
        ]
    }

    // MARK: The screen

    /// Returns whether the new content differs, apart from its revision.
    mutating func show(_ next: ScreenAnswer) -> Bool {
        var next = next
        next.revision = content.revision
        guard next != content else { return false }
        next.revision += 1
        content = next
        return true
    }

    /// Handles a request of the screen program. A connection has one request at a time.
    mutating func ask(_ request: Request, _ participant: Participant, _ facts: Facts) throws(Refusal) -> [Decision] {
        guard case .screen(let shows, _, _) = request.call else { return [] }
        let connection = request.connection
        guard !replaced.contains(connection) else { throw .otherScreen }
        if let screen, screen != connection { replaced.insert(screen) }
        screen = connection
        let earlier = facts.waiting.filter { if case .screen = $0.reason { true } else { false } }
        var lock = facts.lock
        if shows == .lock {
            lock?.isShown = true
            lock?.missingSince = nil
        } else if lock?.missingSince == nil {
            lock?.missingSince = facts.now.uptime
        }
        return earlier.map { .abandon($0.request.number) } + answer(request, participant, lock, facts)
    }

    /// - Parameter lock: The lock as the request has changed it.
    mutating func answer(
        _ request: Request,
        _ participant: Participant,
        _ lock: SessionLock?,
        _ facts: Facts
    ) -> [Decision] {
        guard case .screen(let shows, let known, let patience) = request.call else { return [] }
        var lock = lock
        let lockedWait = shows == .lock ? Self.lockedWait : Self.unshownWait
        let deadline = request.askedAt + (lock == nil ? patience : min(patience, lockedWait))
        let waits = content.revision == known && deadline > facts.now.uptime
        // Until the next request, nothing says that the program still shows the lock.
        if !waits, lock?.missingSince == nil { lock?.missingSince = facts.now.uptime }
        let change = lock.flatMap { $0 == facts.lock ? nil : [Decision.lock($0)] } ?? []
        let response: Decision =
            waits
            ? .wait(request, until: deadline, for: .screen(participant)) : .respond(request.number, .screen(content))
        return change + [response]
    }

    mutating func leave(_ connection: String, _ facts: Facts) -> [Decision] {
        replaced.remove(connection)
        guard connection == screen else { return [] }
        (screen, replaced) = (nil, [])
        guard var lock = facts.lock, lock.missingSince == nil else { return [] }
        lock.missingSince = facts.now.uptime
        return [.lock(lock)]
    }
}
