/// How much of what notifyd sent to them its callers have not read, as far as notifyd knows. Pure.
///
/// A bus keeps what a connection does not read, and dbus-daemon reads nothing more from notifyd, for anybody, while it keeps 127 MB of
/// notifyd's messages. So notifyd asks a connection from time to time whether it reads (`Ping`), and answers nothing more where that stays open
/// and too much is unread. No time limit is involved: a process that is stopped has as much room as any other.
struct UnreadAnswers {
    /// Room for messages that nobody is known to have read, in bytes.
    struct Room: Sendable, Hashable {
        /// For one connection.
        var connection: Int
        /// For all connections of its user.
        var user: Int
        /// For one connection whose user nobody has asked about. A bus has 2048 connections.
        static let ofStrangers = Room(connection: 32 << 10, user: .max)
    }

    /// What may be sent to a connection.
    enum Standing { case anything, refusals, nothing }

    private struct Use {
        var user: UInt32?
        var bytes = 0
        /// How many of the bytes were sent before the question under way; `nil` while there is none.
        var asked: Int?
    }

    /// A connection is asked after so many bytes; and earlier where its user has so much unread that all its connections are asked.
    static let questionAfter = 16 << 10
    private static let mostQuestions = (ofUser: 16, all: 96)
    private static let earlyQuestion = (after: 1 << 10, ofUser: 1 << 20)

    /// Connections that have something unread.
    private var uses: [String: Use] = [:]
    private var users: [UInt32: Int] = [:]

    /// Those that have something unread.
    var connections: some Sequence<String> { uses.keys }

    /// - Parameter user: `nil` for one whose user nobody has asked about.
    func standing(of connection: String, _ user: UInt32?, _ room: Room) -> Standing {
        let (own, all) = (uses[connection]?.bytes ?? 0, user.flatMap { users[$0] } ?? 0)
        if own < room.connection, all < room.user { return .anything }
        // An eighth more for the refusals, which say why.
        if own - own / 8 < room.connection, all - all / 8 < room.user { return .refusals }
        return .nothing
    }

    /// So many bytes are on their way to a connection. Returns whether to ask it if it reads.
    ///
    /// - Parameter isLate: the connection may be gone: it is asked at once, so that nothing is kept of it.
    mutating func sent(_ bytes: Int, to connection: String, _ user: UInt32?, isLate: Bool = false) -> Bool {
        var use = uses[connection] ?? Use()
        if use.user == nil, let user {
            use.user = user
            users[user, default: 0] += use.bytes
        }
        use.bytes += bytes
        if let user = use.user { users[user, default: 0] += bytes }
        defer { uses[connection] = use }
        return ask(&use, isLate: isLate)
    }

    private func ask(_ use: inout Use, isLate: Bool = false) -> Bool {
        let all = use.user.flatMap { users[$0] } ?? 0
        let after = all < Self.earlyQuestion.ofUser ? Self.questionAfter : Self.earlyQuestion.after
        guard use.asked == nil, isLate || use.bytes >= after, hasRoomForQuestion(of: use.user) else { return false }
        use.asked = use.bytes
        return true
    }

    /// A bus lets notifyd wait for 128 answers at a time, and one that does not read gives none: no user takes all of that.
    private func hasRoomForQuestion(of user: UInt32?) -> Bool {
        let open = uses.values.filter { $0.asked != nil }
        return open.count < Self.mostQuestions.all && open.count { $0.user == user } < Self.mostQuestions.ofUser
    }

    /// Connections that were not asked for want of room, and are to be asked now that a question has ended.
    mutating func overdue() -> [String] {
        uses.keys.filter { connection in
            guard var use = uses[connection], ask(&use) else { return false }
            uses[connection] = use
            return true
        }
    }

    /// A connection has read all that was sent before the question. Returns whether to ask again.
    mutating func read(_ connection: String) -> Bool {
        guard var use = uses[connection], let read = use.asked else { return false }
        use.asked = nil
        use.bytes -= read
        release(read, of: use.user)
        defer { uses[connection] = use.bytes > 0 ? use : nil }
        return ask(&use)
    }

    /// The question has failed, and says nothing.
    mutating func failedToAsk(_ connection: String) { uses[connection]?.asked = nil }

    /// A connection is gone, and the bus keeps nothing for it.
    mutating func gone(_ connection: String) {
        guard let use = uses.removeValue(forKey: connection) else { return }
        release(use.bytes, of: use.user)
    }

    private mutating func release(_ bytes: Int, of user: UInt32?) {
        guard let user, let all = users[user] else { return }
        users[user] = all > bytes ? all - bytes : nil
    }
}
