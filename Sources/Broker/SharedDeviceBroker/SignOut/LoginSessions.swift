/// The login sessions of this machine that matter to the device's account, as logind tells of them. Pure.
///
/// A broker of a login session minds its own user's sessions at a seat: one over the network that ends is nobody leaving the device. A
/// broker of the machine minds the graphical sessions at the machine's seat, whoever's they are. One that is in the background counts too:
/// its person has left it for another's.
struct LoginSessions: Sendable {
    /// Whose sessions matter.
    enum Scope: Sendable, Equatable {
        /// This user's.
        case user(UInt32)
        /// The graphical ones here.
        case seat(String)
    }

    /// What a session is, by logind's word.
    struct Session: Sendable, Equatable {
        var userID: UInt32
        /// Empty for one over the network.
        var seat: String
        /// `tty`, `x11`, `wayland`, `mir`, `unspecified`.
        var type: String
        /// `user`, `greeter`, `lock-screen`, `background`, `manager`.
        var sessionClass: String
        var isLocked: Bool
    }

    /// What the person at the device has done.
    enum Event: String, Sendable, Equatable {
        case locked = "screen lock"
        case ended = "logout"
    }

    let scope: Scope
    private var sessions: [String: Session] = [:]

    init(scope: Scope) { self.scope = scope }

    /// What logind says of the session at `path`.
    mutating func found(_ session: Session, at path: String) -> Event? {
        guard matters(session) else {
            sessions[path] = nil
            return nil
        }
        let wasLocked = sessions.updateValue(session, forKey: path)?.isLocked ?? false
        return session.isLocked && !wasLocked ? .locked : nil
    }

    /// The session's screen is locked, or not any more.
    mutating func setLocked(_ isLocked: Bool, at path: String) -> Event? {
        guard let wasLocked = sessions[path]?.isLocked else { return nil }
        sessions[path]?.isLocked = isLocked
        return isLocked && !wasLocked ? .locked : nil
    }

    /// Its screen is asked to lock. What locks it may tell logind so or not.
    func lockRequested(at path: String) -> Event? { sessions[path] == nil ? nil : .locked }

    /// The session is over.
    mutating func removed(_ path: String) -> Event? { sessions.removeValue(forKey: path) == nil ? nil : .ended }

    /// These are all sessions that there are.
    mutating func listed(_ paths: [String]) -> [Event] {
        sessions.keys.filter { !paths.contains($0) }.compactMap { removed($0) }
    }

    private func matters(_ session: Session) -> Bool {
        guard session.sessionClass.hasPrefix("user") else { return false }
        switch scope {
        case .user(let user): return session.userID == user && !session.seat.isEmpty
        case .seat(let seat): return session.seat == seat && ["x11", "wayland", "mir"].contains(session.type)
        }
    }
}
