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

    private var desk = ServiceFrontDesk<Waiting>(lap: 8)

    /// Whether a post of so many bytes may wait for a user.
    func hasRoom(for bytes: Int, of user: UInt32, within limit: CallAmount) -> Bool {
        desk.users[user].hasRoom(for: bytes, within: limit)
    }

    mutating func append(_ post: Post, bytes: Int, to receiver: String, of user: UInt32, pace: CallPace?) {
        desk.users.begin(bytes, of: user)
        desk.queue.append(Waiting(post: post, bytes: bytes, receiver: receiver, user: user), of: user, pace: pace)
    }

    /// When the next turn is; `now` at the earliest, and `nil` if nothing waits.
    func timeOfNext(now: ContinuousClock.Instant) -> ContinuousClock.Instant? {
        desk.queue.timeOfNext(now: now)
    }

    /// The next post that has its turn by now, and its receiver.
    mutating func next(now: ContinuousClock.Instant, pace: (UInt32) -> CallPace?) -> (Post, to: String)? {
        guard let next = desk.queue.next(now: now, pace: pace) else { return nil }
        desk.users.end(next.bytes, of: next.user)
        return (next.post, to: next.receiver)
    }
}
