import DBusService

/// Relayed posts that wait for their turn. They use neither the room nor the turns of their receiver's calls, because
/// other processes decide how many posts there are. Pure.
struct WaitingPosts<Post> {
    private struct Waiting {
        let post: Post
        let bytes: Int
        let receiver: String
        let user: UInt32
    }

    private var desk = ServiceFrontDesk<Waiting>(lap: 8)

    func hasRoom(for bytes: Int, of user: UInt32, within limit: CallAmount) -> Bool {
        desk.users[user].hasRoom(for: bytes, within: limit)
    }

    mutating func append(_ post: Post, bytes: Int, to receiver: String, of user: UInt32, pace: CallPace?) {
        desk.users.begin(bytes, of: user)
        desk.queue.append(Waiting(post: post, bytes: bytes, receiver: receiver, user: user), of: user, pace: pace)
    }

    /// The time of the next turn, at the earliest `now`; `nil` if no post waits.
    func timeOfNext(now: ContinuousClock.Instant) -> ContinuousClock.Instant? {
        desk.queue.timeOfNext(now: now)
    }

    /// Removes and returns the next post whose turn has come, and its receiver.
    mutating func next(now: ContinuousClock.Instant, pace: (UInt32) -> CallPace?) -> (Post, to: String)? {
        guard let next = desk.queue.next(now: now, pace: pace) else { return nil }
        desk.users.end(next.bytes, of: next.user)
        return (next.post, to: next.receiver)
    }
}
