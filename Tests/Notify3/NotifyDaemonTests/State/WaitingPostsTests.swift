import DBusService
import Testing

@testable import notifyd

@Suite struct WaitingPostsTests {
    private var posts = WaitingPosts<Int>()
    private let now = ContinuousClock.now

    private mutating func next() -> String? { posts.next(now: now) { _ in nil }.map { "\($0.0) to \($0.to)" } }

    @Test mutating func usersTakeTurnsAndEachOnesPostsStayInOrder() {
        for post in 0..<20 { posts.append(post, bytes: 1, to: ":1", of: 1, pace: nil) }
        posts.append(20, bytes: 1, to: ":2", of: 2, pace: nil)
        var sent: [String] = []
        while let post = next() { sent.append(post) }
        #expect(sent.filter { $0.hasSuffix(":1") } == (0..<20).map { "\($0) to :1" })
        #expect((sent.firstIndex(of: "20 to :2") ?? 20) <= 8)
    }

    @Test mutating func aUserHasRoomAgainWhenItsPostsHaveHadTheirTurns() {
        let limit = CallAmount(calls: 2, bytes: 100)
        posts.append(0, bytes: 60, to: ":1", of: 1, pace: nil)
        #expect(!posts.hasRoom(for: 41, of: 1, within: limit) && posts.hasRoom(for: 40, of: 1, within: limit))
        #expect(posts.hasRoom(for: 100, of: 2, within: limit))
        posts.append(1, bytes: 1, to: ":1", of: 1, pace: nil)
        #expect(!posts.hasRoom(for: 0, of: 1, within: limit))
        while next() != nil {}
        #expect(posts.hasRoom(for: 100, of: 1, within: limit))
    }
}
