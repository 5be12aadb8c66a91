import DBusTransport

/// Relayed posts until their turn. They take neither room nor turns of their receiver's calls, because others decide how many posts
/// there are. Pure.
struct WaitingPosts<Post> {
    private struct Waiting {
        let post: Post
        let bytes: Int
        let receiver: String
        let user: UInt32
    }

    private var turns = Turns<Waiting>()
    private var uses: [UInt32: WaitingCalls] = [:]

    /// How many users have posts that wait.
    var users: Int { turns.userCount }

    /// Whether a post of so many bytes may wait for a user.
    func hasRoom(for bytes: Int, of user: UInt32, within limit: WaitingCalls) -> Bool {
        (uses[user] ?? WaitingCalls()).hasRoom(for: bytes, within: limit)
    }

    mutating func append(_ post: Post, bytes: Int, to receiver: String, of user: UInt32) {
        uses[user, default: WaitingCalls()].calls += 1
        uses[user]?.bytes += bytes
        turns.append(Waiting(post: post, bytes: bytes, receiver: receiver, user: user), of: user)
    }

    /// When the next turn is; `now` at the earliest, and `nil` if nothing waits.
    func timeOfNext(now: ContinuousClock.Instant, pace: (UInt32) -> CallPace?) -> ContinuousClock.Instant? {
        turns.timeOfNext(now: now, pace: pace)
    }

    /// The next post that has its turn by now, and its receiver.
    mutating func next(now: ContinuousClock.Instant, pace: (UInt32) -> CallPace?) -> (Post, to: String)? {
        guard let next = turns.next(now: now, pace: pace) else { return nil }
        uses[next.user]?.calls -= 1
        uses[next.user]?.bytes -= next.bytes
        if uses[next.user]?.calls == 0 { uses[next.user] = nil }
        return (next.post, to: next.receiver)
    }
}
