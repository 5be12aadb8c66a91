/// One process posts as fast as it can and another observes: from before the first post until the observer has the last.
struct Stream {
    let notification: String
    let posts: Int

    /// The nanoseconds it took, where nothing else is said to an observer of the same kind. Throws `.wrongCount` unless the observer received every post.
    func nanoseconds(
        of contender: Contender,
        to observer: Contender? = nil,
        in setting: Setting
    ) throws(BenchmarkError) -> Double {
        let sink = try setting.start(observer ?? contender, "sink", notification, "\(posts)")
        defer { sink.stop() }
        let flood = try setting.start(contender, "flood", notification, "\(posts)")
        defer { flood.stop() }
        let sent = try flood.result()
        let received = try sink.result()
        let nanoseconds = try received.integer("last-ns") - sent.integer("start-ns")
        guard try received.integer("received") == posts, try sent.integer("posted") == posts, nanoseconds > 0 else {
            throw BenchmarkError(.wrongCount, "posted and received differ, or the clock ran backwards")
        }
        return Double(nanoseconds)
    }
}
