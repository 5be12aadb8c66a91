import DeviceConfiguration
package import FoundationEssentials
package import SharedDevice

/// The login sessions that concern the device's account, as logind reports them.
///
/// A broker on a session bus follows its own user's sessions at a seat. A broker on the system bus follows those of all
/// users at the machine's seat, also in the background: their users have handed the device to another person.
package struct LoginSessions: Sendable {
    package enum Scope: Sendable, Equatable {
        case user(UInt32)
        /// All sessions at this seat. Screen locks and ends are reported only for graphical sessions: an administrator
        /// at a text console causes no sign-out.
        case seat(String)
    }

    package struct Session: Sendable, Equatable {
        /// logind's name of the session. After a restart of logind another session may get the same name.
        package var identifier: String
        package var userID: UInt32
        package var userName: String
        /// The seat's name; empty for a remote session.
        package var seat: String
        /// `tty`, `x11`, `wayland`, `mir`, `unspecified`.
        package var type: String
        /// `user`, `greeter`, `lock-screen`, `background`, `manager`.
        package var sessionClass: String
        /// When the session began, by the wall clock.
        package var began: Date
        /// When the session began, by the monotonic clock that stops during sleep; `nil` if logind does not report it.
        package var beganAwake: Duration?
        /// Whether the session is in the foreground.
        package var isActive: Bool
        package var isLocked: Bool
        /// Whether it is a login over the network, for instance to a virtual screen.
        package var isRemote: Bool
        /// Whether the person has logged out while processes of the session remain.
        package var isClosing: Bool

        /// By default a session that has just begun: in the foreground, local and not locked.
        package init(
            identifier: String,
            userID: UInt32,
            userName: String,
            seat: String,
            type: String,
            sessionClass: String,
            began: Date,
            beganAwake: Duration? = nil,
            isActive: Bool = true,
            isLocked: Bool = false,
            isRemote: Bool = false,
            isClosing: Bool = false
        ) {
            (self.identifier, self.userID, self.userName) = (identifier, userID, userName)
            (self.seat, self.type, self.sessionClass) = (seat, type, sessionClass)
            (self.began, self.beganAwake) = (began, beganAwake)
            (self.isActive, self.isLocked) = (isActive, isLocked)
            (self.isRemote, self.isClosing) = (isRemote, isClosing)
        }

        var isGraphical: Bool { ["x11", "wayland", "mir"].contains(type) }
        package var name: LoginName { LoginName(identifier: identifier, began: began) }
    }

    private let scope: Scope
    private var sessions: [String: Session] = [:]

    package init(scope: Scope) { self.scope = scope }

    package var isEmpty: Bool { sessions.isEmpty }

    /// The sessions at the seat whose people have not logged out.
    package var seat: Seat { Seat(sessions: sessions.values.filter { !$0.isClosing }) }

    /// Records the properties of the session at `path`, and returns the resulting event, if any.
    package mutating func found(_ session: Session, at path: String) -> LoginEvent? {
        guard matters(session) else {
            sessions[path] = nil
            return nil
        }
        let before = sessions.updateValue(session, forKey: path)
        // The person has logged out, even if processes remain.
        if session.isClosing { return before?.isClosing == false && tells(session) ? .ended : nil }
        return session.isLocked && before?.isLocked != true && tells(session) ? .locked(session.name) : nil
    }

    /// Records that the session's screen was locked or unlocked.
    package mutating func setLocked(_ isLocked: Bool, at path: String) -> LoginEvent? {
        guard let session = sessions[path] else { return nil }
        sessions[path]?.isLocked = isLocked
        return isLocked && !session.isLocked && tells(session) && !session.isClosing ? .locked(session.name) : nil
    }

    /// A program that locks the screen may never report the lock to logind.
    package func lockRequested(at path: String) -> LoginEvent? {
        sessions[path].flatMap { tells($0) && !$0.isClosing ? .locked($0.name) : nil }
    }

    package mutating func removed(_ path: String) -> LoginEvent? {
        sessions.removeValue(forKey: path).map { tells($0) && !$0.isClosing } == true ? .ended : nil
    }

    package mutating func listed(_ paths: [String]) -> [LoginEvent] {
        sessions.keys.filter { !paths.contains($0) }.compactMap { removed($0) }
    }

    /// A session of class `user-incomplete` may never become a full session.
    private func matters(_ session: Session) -> Bool {
        guard session.sessionClass.hasPrefix("user"), session.sessionClass != "user-incomplete", !session.isRemote
        else { return false }
        switch scope {
        case .user(let user): return session.userID == user && !session.seat.isEmpty
        case .seat(let seat): return session.seat == seat
        }
    }

    /// Whether the session's lock and end are reported. Callers also exclude `isClosing`: the remaining processes must
    /// not sign out the next person.
    private func tells(_ session: Session) -> Bool { if case .user = scope { true } else { session.isGraphical } }
}

/// Identifies a login session, even if an earlier or a later one has the same name.
package struct LoginName: Sendable, Hashable {
    package let identifier: String
    package let began: Date
}

/// The logins at the seat: the sessions that people have not left.
package struct Seat: Sendable, Equatable {
    package let sessions: [LoginSessions.Session]

    package init(sessions: [LoginSessions.Session] = []) {
        self.sessions = sessions.sorted { ($0.began, $0.identifier) < ($1.began, $1.identifier) }
    }

    package var names: Set<LoginName> { Set(sessions.map(\.name)) }

    package var graphical: Set<LoginName> { Set(sessions.filter(\.isGraphical).map(\.name)) }

    package var locked: Set<LoginName> { Set(sessions.filter(\.isLocked).map(\.name)) }

    /// The person at the device: the user of the session in the foreground. While a greeter or an empty console is
    /// there, the previous person stays. Root is the administrator, and never the person.
    ///
    /// - Parameter staying: The user who was at the device so far.
    package func login(staying: UInt32?) -> SeatLogin? {
        let people = sessions.filter { $0.userID != 0 }
        guard let session = people.first(where: \.isActive) ?? people.first(where: { $0.userID == staying }) else {
            return nil
        }
        let own = people.filter { $0.userID == session.userID }
        return SeatLogin(
            user: session.userID,
            userName: session.userName,
            sessions: Set(own.map(\.name)),
            began: own.map(\.began).min() ?? session.began
        )
    }
}

/// One person's login at the seat. It ends with the last of the person's sessions.
package struct SeatLogin: Sendable, Equatable {
    package let user: UInt32
    package let userName: String
    package let sessions: Set<LoginName>
    /// When the first of the sessions began.
    package let began: Date

    /// The prefix of the identifiers of accounts that come from a login.
    private static let prefix = "uid-"

    /// - Parameter tenant: The device's tenant. People who may log in at the device belong to it.
    package func account(tenant: String?) -> Account {
        let tenant = tenant?.lowercased() ?? IdentitySource.loginSession.rawValue
        return Account(identifier: "\(Self.prefix)\(user).\(tenant)", username: userName)
    }

    /// The user of an account that comes from a login; `nil` for an account of an identity provider.
    package static func user(of account: Account) -> UInt32? {
        guard account.identifier.hasPrefix(prefix) else { return nil }
        return UInt32(account.identifier.dropFirst(prefix.count).prefix { $0 != "." })
    }
}
