import DeviceConfiguration
package import FoundationEssentials
package import SharedDevice

/// The login sessions of this machine that matter to the device's account, as logind tells of them. Pure.
///
/// A broker on a session bus follows its own user's sessions at a seat: when a session over the network ends, nobody leaves the device. A broker
/// on the system bus follows the sessions of all users at the machine's seat. A session in the background counts too: its user has
/// handed the device to another.
package struct LoginSessions: Sendable {
    /// Whose sessions matter.
    package enum Scope: Sendable, Equatable {
        /// This user's.
        case user(UInt32)
        /// All of them here. The screen lock and the end of those alone count that are graphical: an administrator at a text console locks nothing.
        case seat(String)
    }

    /// What a session is, by logind's word.
    package struct Session: Sendable, Equatable {
        /// logind's name for it. Another session may get it after a restart of logind.
        package var identifier: String
        package var userID: UInt32
        package var userName: String
        /// Empty for one over the network.
        package var seat: String
        /// `tty`, `x11`, `wayland`, `mir`, `unspecified`.
        package var type: String
        /// `user`, `greeter`, `lock-screen`, `background`, `manager`.
        package var sessionClass: String
        /// When it began, by the wall clock.
        package var began: Date
        /// When it began, by the clock that never jumps, and stands still while the machine sleeps; `nil` where logind does not say.
        package var beganAwake: Duration?
        /// Whether it is the one in front.
        package var isActive: Bool
        package var isLocked: Bool
        /// Whether somebody has logged in over the network, for instance to a screen that a program makes.
        package var isRemote: Bool
        /// Whether its person has logged out, and processes of it are left.
        package var isClosing: Bool

        /// One that has just begun: in front, at this machine, and not locked.
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
            self.identifier = identifier
            self.userID = userID
            self.userName = userName
            self.seat = seat
            self.type = type
            self.sessionClass = sessionClass
            self.began = began
            self.beganAwake = beganAwake
            self.isActive = isActive
            self.isLocked = isLocked
            self.isRemote = isRemote
            self.isClosing = isClosing
        }

        var isGraphical: Bool { ["x11", "wayland", "mir"].contains(type) }
        package var name: LoginName { LoginName(identifier: identifier, began: began) }
    }

    private let scope: Scope
    private var sessions: [String: Session] = [:]

    package init(scope: Scope) { self.scope = scope }

    /// Whether there is no session that matters.
    package var isEmpty: Bool { sessions.isEmpty }

    /// The sessions of people at the seat.
    package var seat: Seat { Seat(sessions: sessions.values.filter { !$0.isClosing }) }

    /// What logind says of the session at `path`.
    package mutating func found(_ session: Session, at path: String) -> LoginEvent? {
        guard matters(session) else {
            sessions[path] = nil
            return nil
        }
        let before = sessions.updateValue(session, forKey: path)
        // The person has logged out, though a process may be left.
        if session.isClosing { return before?.isClosing == false && tells(session) ? .ended : nil }
        return session.isLocked && before?.isLocked != true && tells(session) ? .locked(session.name) : nil
    }

    /// The session's screen is locked, or not any more.
    package mutating func setLocked(_ isLocked: Bool, at path: String) -> LoginEvent? {
        guard let session = sessions[path] else { return nil }
        sessions[path]?.isLocked = isLocked
        return isLocked && !session.isLocked && tells(session) && !session.isClosing ? .locked(session.name) : nil
    }

    /// Somebody asks for the session's screen to be locked. The program that locks it may or may not tell logind that it is locked.
    package func lockRequested(at path: String) -> LoginEvent? {
        sessions[path].flatMap { tells($0) && !$0.isClosing ? .locked($0.name) : nil }
    }

    /// The session is over.
    package mutating func removed(_ path: String) -> LoginEvent? {
        sessions.removeValue(forKey: path).map { tells($0) && !$0.isClosing } == true ? .ended : nil
    }

    /// These are all sessions that there are.
    package mutating func listed(_ paths: [String]) -> [LoginEvent] {
        sessions.keys.filter { !paths.contains($0) }.compactMap { removed($0) }
    }

    /// Of a session whose user's home directory is not there yet (`user-incomplete`), nobody knows whether it becomes one.
    private func matters(_ session: Session) -> Bool {
        guard session.sessionClass.hasPrefix("user"), session.sessionClass != "user-incomplete", !session.isRemote
        else {
            return false
        }
        switch scope {
        case .user(let user): return session.userID == user && !session.seat.isEmpty
        case .seat(let seat): return session.seat == seat
        }
    }

    /// Whether its lock and its end are told. What is left of a person who has logged out (`isClosing`) must not sign out who comes next.
    private func tells(_ session: Session) -> Bool { if case .user = scope { true } else { session.isGraphical } }
}

/// A login session, also beside others that had the same name before or after it.
package struct LoginName: Sendable, Hashable {
    package let identifier: String
    package let began: Date
}

/// Who is logged in at the seat: the sessions of people there that are not over.
package struct Seat: Sendable, Equatable {
    package let sessions: [LoginSessions.Session]

    /// - Parameter sessions: in any order.
    package init(sessions: [LoginSessions.Session] = []) {
        self.sessions = sessions.sorted { ($0.began, $0.identifier) < ($1.began, $1.identifier) }
    }

    /// The sessions' names.
    package var names: Set<LoginName> { Set(sessions.map(\.name)) }

    /// The names of the graphical ones.
    package var graphical: Set<LoginName> { Set(sessions.filter(\.isGraphical).map(\.name)) }

    /// The names of those whose screen is locked.
    package var locked: Set<LoginName> { Set(sessions.filter(\.isLocked).map(\.name)) }

    /// The person at the device: whose session is in front. While a greeter or an empty console is in front, the person who was there stays; one
    /// who is logged in in the background, behind nobody, is not at the device. Root is the administrator, and never that person.
    ///
    /// - Parameter staying: the user who is there by what was known before.
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

/// One person's login at the seat. It lasts as long as one of its sessions does, so that a second session of the same person neither begins nor
/// ends it.
package struct SeatLogin: Sendable, Equatable {
    package let user: UInt32
    package let userName: String
    package let sessions: Set<LoginName>
    /// When the first of the sessions began.
    package let began: Date

    /// The beginning of the identifiers of all accounts that are logins.
    private static let prefix = "uid-"

    /// The account that is this person's.
    ///
    /// - Parameter tenant: the device's; who may log in at the device belongs to it.
    package func account(tenant: String?) -> Account {
        let tenant = tenant?.lowercased() ?? IdentitySource.loginSession.rawValue
        return Account(identifier: "\(Self.prefix)\(user).\(tenant)", username: userName)
    }

    /// The user whose login this account is; `nil` for an account of an identity provider's.
    package static func user(of account: Account) -> UInt32? {
        let parts = account.identifier.split(separator: ".", maxSplits: 1, omittingEmptySubsequences: false)
        guard let first = parts.first, first.hasPrefix(prefix) else { return nil }
        return UInt32(first.dropFirst(prefix.count))
    }
}
