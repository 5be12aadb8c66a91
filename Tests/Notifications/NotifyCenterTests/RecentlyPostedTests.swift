import Testing

@testable import NotifyCenter

@Suite("The cache of recently posted messages")
struct RecentlyPostedTests {
    @Test("the least recently used name is evicted first, and the size is limited")
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
    }

    @Test("names are compared by bytes, and long ones are not cached")
    func names() {
        var recent = RecentlyPosted<Int>()
        recent.keep(1, of: "\u{E9}")
        let other = recent.message(of: "e\u{301}")
        #expect(other == nil)
        recent.keep(2, of: NotificationName(String(repeating: "x", count: RecentlyPosted<Int>.longestName + 1)))
        #expect(recent.count == 1)
    }
}
