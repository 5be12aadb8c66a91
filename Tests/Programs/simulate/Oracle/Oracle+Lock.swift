import BrokerCore
import Identity
@_spi(Extensions) import SharedDevice

/// The oracle's knowledge of locked sessions, and of what the broker was told about the screen.
struct LockTruth {
    /// The account of each session.
    var owners: [UInt64: String] = [:]
    var locked: (session: UInt64, at: Duration)?
    /// The connection of the screen's last request.
    var connection: String?
    /// Whether that request has said that the screen shows the lock.
    var isShown = false
    /// Since when no request of a screen that shows the lock waits at the broker.
    var missingSince: Duration? = .zero
    /// Who has really authenticated, by the number of the request.
    var people: [UInt64: String] = [:]
    /// The session that this run of the broker has found on the disk, until a configuration is in force.
    var resumed: UInt64?

    /// How long a locked session goes on without a screen.
    static let patience = Duration.seconds(10)
    /// How long the screen may take to show a new lock.
    static let showPatience = Duration.seconds(5)
}

extension Oracle {
    mutating func startedLock(_ state: BrokerState, _ world: World) {
        lock.locked = nil
        (lock.connection, lock.isShown, lock.missingSince) = (nil, false, world.now.uptime)
        lock.resumed = state.device.account == nil ? nil : state.device.epoch
    }

    /// Checks that only the person of a locked session continues it, that only another person who may sign in ends it,
    /// and that it is locked only while a screen shows that.
    mutating func judgeLock(_ event: Event, _ effects: [Effect], _ state: BrokerState, _ world: World) {
        let now = world.now.uptime
        heardOfScreen(event, at: now)
        if case .authenticated(let number, .success(let identity)) = event {
            lock.people[number] = identity.account.identifier
        }
        for effect in effects {
            switch effect {
            case .reply(_, .success(.screen)): lock.missingSince = lock.missingSince ?? now
            case .journal(let entry): judge(entry, event, at: now)
            default: break
            }
        }
        if case .configured = event, policy.isConfigured {
            if policy.schedule.locked != nil, let session = lock.resumed, state.device.account != nil,
                state.device.epoch == session, lock.locked?.session != session
            {
                fail("a session is open after a start, and not locked", "\(session)")
            }
            lock.resumed = nil
        }
        guard let locked = lock.locked, state.device.account != nil else { return }
        if let since = lock.missingSince, now > since + LockTruth.patience + Self.moment {
            fail("a locked session goes on without a screen", "\(locked.session), \(now - since)")
        }
        if let most = policy.schedule.locked, now > locked.at + most + Self.moment {
            fail("a locked session outlasts its time", "\(locked.session), \(now - locked.at)")
        }
    }

    private mutating func heardOfScreen(_ event: Event, at now: Duration) {
        switch event {
        case .request(let request):
            guard case .screen(let shows, _, _) = request.call, Int(request.number >> 32) == World.screen else {
                return
            }
            (lock.connection, lock.isShown) = (request.connection, shows == .lock)
            lock.missingSince = lock.isShown ? nil : lock.missingSince ?? now
        case .left(let connection, _):
            guard connection == lock.connection else { return }
            (lock.isShown, lock.missingSince) = (false, lock.missingSince ?? now)
        case .busLost: (lock.isShown, lock.missingSince) = (false, lock.missingSince ?? now)
        default: break
        }
    }

    private mutating func judge(_ entry: AuditEntry, _ event: Event, at now: Duration) {
        guard let session = entry.session else { return }
        switch entry.event {
        case .signedIn:
            if let locked = lock.locked {
                fail("an account was signed in during a locked session", "\(locked.session)")
            }
            lock.owners[session] = entry.account
        case .signedOut:
            if entry.detail?.hasPrefix("another person signed in") == true {
                let person = person(of: event)
                let isAllowed = person != nil && person != lock.owners[session] && person?.hasSuffix(".contoso") == true
                if !isAllowed { fail("a locked session was ended by a person who may not", "\(session)") }
            }
            if lock.locked?.session == session { lock.locked = nil }
        case .locked:
            if !lock.isShown, lock.resumed != session {
                fail("a session was locked, and no screen shows it", "\(session)")
            }
            lock.locked = (session, now)
        case .unlocked:
            lock.locked = nil
            if use?.session == session { use = LastUse(session: session, at: now) }
            guard let person = person(of: event), person == lock.owners[session] else {
                return fail("a session was unlocked by another person", "\(session)")
            }
        default: break
        }
    }

    /// The account of the person who has really authenticated; `nil` if it is no such event.
    private func person(of event: Event) -> String? {
        switch event {
        case .authenticated(let number, .success), .issued(let number, .success): lock.people[number]
        default: nil
        }
    }
}
