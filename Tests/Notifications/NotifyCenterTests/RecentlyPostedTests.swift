import Testing

@testable import NotifyCenter

@Suite("The cache of recently posted messages")
struct RecentlyPostedTests {
    @Test("the least recently used name is evicted, and long names are not cached")
    func order() {
        var recent = RecentlyPosted<Int>()
        let capacity = RecentlyPosted<Int>.capacity
        for number in 0..<capacity { recent.keep(number, of: "\(number)") }
        let first = recent.message(of: "0")
        #expect(first == 0)
        recent.keep(capacity, of: "one more")
        #expect(recent.count == capacity)
        let (kept, gone, new) = (recent.message(of: "0"), recent.message(of: "1"), recent.message(of: "one more"))
        #expect(kept == 0 && gone == nil && new == capacity)
        recent.keep(7, of: "0")
        #expect(recent.count == capacity)
        var named = RecentlyPosted<Int>()
        named.keep(1, of: "\u{E9}")
        let other = named.message(of: "e\u{301}")
        #expect(other == nil)
        named.keep(2, of: NotificationName(String(repeating: "x", count: RecentlyPosted<Int>.longestName + 1)))
        #expect(named.count == 1)
    }
}
