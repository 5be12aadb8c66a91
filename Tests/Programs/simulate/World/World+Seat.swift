import BrokerCore
import DeviceConfiguration
import Foundation
import SharedDevice

/// The logins at the machine's seat, and the events that the broker's watch of logind has yet to deliver. The broker's
/// own ``LoginSessions`` derives the events from logind's reports.
struct SimulatedSeat {
    /// The real sessions by their paths.
    var sessions: [String: LoginSessions.Session] = [:]
    var lastNumber = 0
    var isLogindUp = true
    var events: [Event] = []
    /// The seat that the broker last received.
    var heard: Seat?
    private var watch = LoginSessions(scope: .seat(name))
    private var told: Seat?

    static let name = "seat0"

    var seat: Seat { Seat(sessions: Array(sessions.values)) }

    /// The session in the foreground, or else the last one.
    var front: String? {
        sessions.first { $0.value.isActive }?.key ?? sessions.max { $0.value.identifier < $1.value.identifier }?.key
    }

    /// Restarts the watch together with the broker.
    mutating func restart() {
        (watch, told, events) = (LoginSessions(scope: .seat(Self.name)), nil, [])
        list()
    }

    /// Reports all of logind's present state.
    mutating func list() {
        guard isLogindUp else {
            told = nil
            return events.append(.seat(nil))
        }
        var heard: [LoginEvent] = []
        for (path, session) in sessions.sorted(by: { $0.key < $1.key }) {
            watch.found(session, at: path).map { heard.append($0) }
        }
        heard += watch.listed(sessions.keys.sorted())
        tell(heard)
    }

    mutating func setLocked(_ isLocked: Bool, at path: String) {
        sessions[path]?.isLocked = isLocked
        guard isLogindUp else { return }
        tell([watch.setLocked(isLocked, at: path)].compactMap(\.self))
    }

    mutating func remove(_ path: String) {
        sessions[path] = nil
        guard isLogindUp else { return }
        tell([watch.removed(path)].compactMap(\.self))
    }

    private mutating func tell(_ heard: [LoginEvent]) {
        if watch.seat != told {
            told = watch.seat
            events.append(.seat(watch.seat))
        }
        events += heard.map { .login($0) }
    }
}

extension World {
    /// An action of a user at the seat, or a change of logind.
    enum SeatDeed: Hashable {
        case logIn(UInt32)
        case logOut, lock, unlock
        /// Brings the user's session to the foreground, or the greeter if the user has none.
        case switchTo(UInt32)
        case logindGoes, logindComes
    }

    func atSeat(_ deed: SeatDeed) {
        switch deed {
        case .logIn(let user):
            seat.lastNumber += 1
            let session = LoginSessions.Session(
                identifier: "c\(seat.lastNumber)",
                userID: user,
                userName: "user\(user)",
                seat: SimulatedSeat.name,
                type: "wayland",
                sessionClass: "user",
                began: now.wall
            )
            seat.sessions["/\(seat.lastNumber)"] = session
            show(user)
        case .switchTo(let user): show(user)
        case .logOut: if let path = seat.front { seat.remove(path) }
        case .lock: if let path = seat.front { seat.setLocked(true, at: path) }
        case .unlock:
            guard let path = seat.front, seat.sessions[path]?.isLocked == true else { return }
            seat.setLocked(false, at: path)
        case .logindGoes, .logindComes:
            let isUp = deed == .logindComes
            guard seat.isLogindUp != isUp else { return }
            seat.isLogindUp = isUp
            seat.list()
        }
    }

    /// Brings the user's newest session to the foreground.
    private func show(_ user: UInt32) {
        let own = seat.sessions.filter { $0.value.userID == user }
        let path = own.max { ($0.value.began, $0.key) < ($1.value.began, $1.key) }?.key
        for other in seat.sessions.keys { seat.sessions[other]?.isActive = other == path }
        if seat.isLogindUp { seat.list() }
    }

    func seatTells() {
        guard !seat.events.isEmpty else { return }
        let event = seat.events.removeFirst()
        if case .seat(let found) = event {
            note("the broker hears of the logins \(found?.sessions.map { "\($0.identifier) of \($0.userID)" } ?? [])")
            if mutant == .loginsAreForgotten { feed(.seat(Seat())) }
            // A restarted broker does not know which logins were locked, so each unlocked login counts as unlocked now.
            let unlocked = found.map { (seat.heard?.locked ?? $0.names).subtracting($0.locked) }
            for name in unlocked ?? [] { oracle.spent.remove(name, by: .lock) }
            seat.heard = found
        }
        if case .login(let deed) = event { note("the broker hears of the seat: \(deed)") }
        feed(event)
    }
}

// MARK: Promises

/// The logins that must not sign in again.
struct SpentLogins {
    enum Cause { case request, lock }

    private var causes: [LoginName: Cause] = [:]
    var logins: [UInt64: Set<LoginName>] = [:]

    mutating func add(_ names: Set<LoginName>, by cause: Cause) { for name in names { causes[name] = cause } }

    mutating func remove(_ name: LoginName, by cause: Cause) { if causes[name] == cause { causes[name] = nil } }

    mutating func remove(ofSession session: UInt64) { for name in logins[session] ?? [] { causes[name] = nil } }

    /// Permits all logins again, whatever the cause was.
    mutating func forget() { causes = [:] }

    func contains(_ name: LoginName) -> Bool { causes[name] != nil }
}

extension Oracle {
    /// The causes of a sign-out after which the login may sign in again: the login has ended, is in the background or
    /// is not used.
    private static let harmless = ["logout", "switch of users", "logind does not respond", "the managed configuration"]

    mutating func judgeSeat(_ event: Event, _ effects: [Effect], _ before: DeviceState, _ world: World) {
        guard policy.identity == .loginSession else { return }
        var isLock = false
        if case .login(.locked(_)) = event { isLock = true }
        for case .journal(let entry) in effects {
            guard let session = entry.session else { continue }
            switch entry.event {
            case .signedIn: loggedIn(session, entry, world)
            case .signedOut:
                let names = spent.logins[session] ?? []
                if isLock {
                    spent.add(names, by: .lock)
                } else if before.account == nil || before.epoch != session {
                    // The session never opened, so its login may be tried again.
                    break
                } else if !Self.harmless.contains(entry.detail ?? "") {
                    spent.add(names, by: .request)
                }
            default: break
            }
        }
    }

    private mutating func loggedIn(_ session: UInt64, _ entry: AuditEntry, _ world: World) {
        guard let user = entry.account.flatMap({ SeatLogin.user(of: Account(identifier: $0, username: $0)) }),
            let login = world.seat.heard?.login(staying: user), login.user == user
        else {
            return fail(
                "an account without a user at the seat is signed in",
                "session \(session), \(entry.account ?? "?")"
            )
        }
        spent.logins[session] = login.sessions
        // A broker that was restarted since knows only by the wall clock which logins existed.
        if clockSetAt == nil, let name = login.sessions.first(where: { spent.contains($0) }) {
            fail("a login that was signed out has signed in again", "session \(session), login \(name.identifier)")
        }
    }

    /// Checks at rest that the account, if any, is that of the user at the seat.
    mutating func checkSeatEnd(_ device: DeviceState, _ world: World) {
        guard policy.identity == .loginSession, let account = device.account else { return }
        let user = SeatLogin.user(of: account)
        if let login = world.seat.seat.login(staying: user), login.user == user {
            guard policy.endsAtScreenLock, !login.sessions.isDisjoint(with: world.seat.seat.locked) else { return }
            return fail("an account is signed in behind a locked screen", account.identifier)
        }
        fail("an account without a user at the seat is signed in", account.identifier)
    }
}
