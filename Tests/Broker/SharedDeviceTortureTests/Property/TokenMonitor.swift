/// No token is handed out once its session is over.
struct TokenMonitor: Sendable {
    /// The latest epoch at which each token was first given out.
    private var firstSeen: [String: UInt64] = [:]

    /// - Parameters:
    ///   - before: what was on the broker's disk before the request was made.
    ///   - after: the same, after the answer.
    mutating func granted(
        _ token: String,
        of user: String,
        before: Truth,
        after: Truth
    ) throws(Monitor.Violation) {
        if before.epoch == after.epoch, after.open?.session.user != user {
            throw Monitor.Violation(
                "a token of \(user) was handed out at epoch \(after.epoch), where \(user) is not signed in"
            )
        }
        if let epoch = firstSeen[token], epoch < before.epoch {
            throw Monitor.Violation(
                "a token of \(user) from epoch \(epoch) was handed out again at epoch \(before.epoch)"
            )
        }
        if firstSeen[token] == nil { firstSeen[token] = after.epoch }
    }
}
