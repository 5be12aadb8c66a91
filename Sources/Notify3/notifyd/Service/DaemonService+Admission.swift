package import DBus
import NotifyCenter

// Admission of calls, before anything else is done with them. A call is taken if its user has room for it and its
// caller reads the replies.
extension DaemonService: CallScheduler {
    static let tooMuchWaits = Refusal(
        .limitsExceeded,
        "the pending calls of this user are too many or too large; wait for responses first"
    )
    private static let tooMuchUnread = Refusal(.limitsExceeded, UnreadAnswerGuard.remedy)

    /// From this size on, a report is discarded if the bus has not yet told who the caller is. notifyd asks for a new
    /// report later.
    private static let largeReport = CallAmount.ofStranger.bytes

    package nonisolated func admit(_ call: borrowing MessageHeader) -> CallPermission {
        guard let sender = call.sender else { return .drop }
        let bytes = call.bytes
        let wantsAnswer = call.expectsReply
        let isReport = bytes > Self.largeReport && call.member == NotifydProtocol.Method.report.rawValue
        return assumeIsolated { $0.admit(from: sender, bytes, wantsAnswer: wantsAnswer, isLargeReport: isReport) }
    }

    private func admit(from sender: String, _ bytes: Int, wantsAnswer: Bool, isLargeReport: Bool) -> CallPermission {
        let user = user(of: sender)
        let standing = wantsAnswer ? standing(of: sender, user) : .anything
        if standing == .nothing {
            figures.dropped += 1
            unread.dropped(sender)
            return .drop
        }
        let limit = user.map { state.limits(ofUser: $0).waiting } ?? .ofStranger
        guard arrivals.hasRoom(for: bytes, of: sender, user, limit) else {
            if isLargeReport, user == nil { arrivals.reportedTooMuch(sender) }
            guard wantsAnswer else {
                figures.dropped += 1
                return .drop
            }
            return .refuse(refused(Self.tooMuchWaits))
        }
        return standing == .anything ? .take : .refuse(refused(Self.tooMuchUnread))
    }

    private func refused(_ refusal: Refusal) -> MethodFailure {
        figures.refusals += 1
        return MethodFailure(refusal)
    }

    // MARK: Unread messages

    /// Returns whether a connection reads what notifyd sends to it, as far as notifyd knows.
    func reads(_ connection: String) -> Bool { standing(of: connection, user(of: connection)) == .anything }

    /// The connections that do not read.
    var silent: Set<String> { Set(unread.connections.filter { !reads($0) }) }

    private func standing(of connection: String, _ user: UInt32?) -> UnreadAnswers.Standing {
        unread.standing(of: connection, user, user.map { state.limits(ofUser: $0).unread } ?? .ofStrangers)
    }

    package nonisolated func answered(_ caller: String, bytes: Int) {
        if connection.isOnReadingThread { return assumeIsolated { $0.sent(bytes, to: caller) } }
        connection.perform { self.assumeIsolated { $0.sent(bytes, to: caller, isLate: true) } }
    }

    /// Counts bytes that are on their way to a connection.
    func sent(_ bytes: Int, to connection: String, isLate: Bool = false) {
        unread.sent(bytes, to: connection, user(of: connection), isLate: isLate)
    }

    // MARK: Turns

    package nonisolated func carryOut() -> ContinuousClock.Instant? { assumeIsolated { $0.proceed() } }
}
