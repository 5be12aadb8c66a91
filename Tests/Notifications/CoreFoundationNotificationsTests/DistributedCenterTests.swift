import Foundation
import NotifyCenterTestKit
import Testing

@Suite("The distributed center, from C's functions")
struct DistributedCenterTests {
    private let bus: PrivateBus
    private let app: App

    init() throws {
        bus = try PrivateBus()
        app = try App(bus)
    }

    // CF-A2, CF-A9, CF-D2, CF-D6, CF-P10, CF-T5
    @Test(
        "a callback runs on the main thread with what was registered and posted, in the poster's process and in another"
    )
    func delivery() async throws {
        let other = try App(bus)
        for app in [app, other] { try await app.perform("add distributed 7 - - 0") }
        try await app.perform("post distributed n A text true")
        for app in [app, other] {
            try await eventually("it is heard") { app.heard.count == 1 }
            #expect(app.heard == [#"by 7 from distributed: "n", object "A", userInfo {"key": "text"}, main"#])
        }
    }

    // CF-M1, CF-M2, CF-M3, CF-M4, CF-M7, CF-P2, CF-A4
    @Test("the table of names and objects holds; objects are compared as text")
    func matching() async throws {
        try await app.perform(
            "add distributed 1 n - 2",
            "add distributed 2 n A 2",
            "add distributed 3 - - 2",
            "add distributed 4 - A 2"
        )
        try await app.perform(
            "post distributed n - - false",
            "post distributed n A - false",
            "post distributed n B - false",
            "post distributed m A - false",
            "post distributed N A - false"
        )
        let table = [
            "1": ["n NULL", "n A", "n B"], "2": ["n A"], "3": ["n NULL", "n A", "n B", "m A", "N A"],
            "4": ["n A", "m A", "N A"],
        ]
        let heard = try await app.everythingHeard()
        for (observer, expected) in table {
            let own = heard.filter { $0.hasPrefix("by \(observer) ") }.map { line in
                let words = line.replacing("\"", with: "").replacing(",", with: "").split(separator: " ")
                return "\(words[4]) \(words[6])".replacing(":", with: "")
            }
            #expect(own == expected, "observer \(observer)")
        }
    }

    // CF-T6, CF-M3
    @Test(
        "names and objects hold any Unicode",
        arguments: ["%00", "n%00x", "", "e%CC%81", "%F0%9F%98%80", "%EF%BB%BFn"]
    )
    func unicode(word: String) async throws {
        let text = try #require(word.removingPercentEncoding)
        try await app.perform("add distributed 1 \(word) \(word) 2", "post distributed \(word) \(word) - false")
        #expect(
            try await app.everythingHeard() == [
                "by 1 from distributed: \(text.debugDescription), object \(text.debugDescription), userInfo NULL, main"
            ]
        )
    }

    // CF-R2, CF-R3, CF-R4, CF-R5, CF-R8
    @Test("a removal compares name and object, objects as text, and leaves other observers in place")
    func removing() async throws {
        try await app.perform(
            "add distributed 1 n - 2",
            "add distributed 1 n A 2",
            "add distributed 2 n A 2",
            "remove distributed 1 n A",
            "remove distributed 1 n A",
            "post distributed n A - false"
        )
        #expect(try await app.everythingHeard().map { $0.prefix(4) } == ["by 1", "by 2"])
        try await app.perform(
            "remove-every distributed 1",
            "remove-every distributed 1",
            "post distributed n A - false"
        )
        #expect(try await app.everythingHeard().map { $0.prefix(4) } == ["by 1", "by 2", "by 2"])
        try await app.perform("remove distributed 2 - -", "post distributed n A - false")
        #expect(try await app.everythingHeard().count == 3)
    }

    // CF-A5, CF-A10
    @Test("equal registrations are each called, and removed together")
    func duplicates() async throws {
        for _ in 0..<3 { try await app.perform("add distributed 1 n A 2") }
        try await app.perform("post distributed n A - false")
        #expect(try await app.everythingHeard().count == 3)
        try await app.perform("remove distributed 1 n A", "post distributed n A - false")
        #expect(try await app.everythingHeard().count == 3)
    }

    // CF-A6
    @Test("a registration gets nothing that was delivered before it")
    func noReplay() async throws {
        try await app.perform("add distributed 1 n - 2", "post distributed n - - false")
        _ = try await app.everythingHeard()
        try await app.perform("add distributed 2 n - 2")
        #expect(try await app.everythingHeard().map { $0.prefix(4) } == ["by 1"])
    }

    // CF-A1
    @Test("an observer may be NULL; then no removal finds it")
    func nullObserver() async throws {
        try await app.perform(
            "add distributed 0 n - 2",
            "remove distributed 0 n -",
            "remove-every distributed 0",
            "post distributed n - - false"
        )
        #expect(try await app.everythingHeard().map { $0.prefix(4) } == ["by 0"])
    }

    // CF-C2, CF-R7
    @Test("a callback may remove itself: it gets one post of three")
    func removesItself() async throws {
        try await app.perform("when 1 remove distributed 1 - -", "add distributed 1 n - 2")
        for _ in 0..<3 { try await app.perform("post distributed n - - false") }
        #expect(try await app.everythingHeard().count == 1)
    }

    // CF-C4, CF-C7, CF-D1
    @Test("a callback may post, to this center and to others")
    func postsWithin() async throws {
        try await app.perform(
            "when 1 post distributed m - - false",
            "when 2 post local l - - false",
            "add distributed 1 n - 2",
            "add distributed 2 m - 2",
            "add local 3 l - 0",
            "post distributed n - - false"
        )
        try await eventually("all are heard") { app.heard.count == 3 }
        #expect(app.heard.map { $0.prefix(4) } == ["by 1", "by 2", "by 3"])
    }

    // CF-S1, CF-S3, CF-S4, CF-S5, CF-S8, CF-A7
    @Test("each registration decides what waits while the center is suspended; 0 means coalesce")
    func suspension() async throws {
        #expect(try await app.answer(to: "show-suspended distributed") == "suspended false")
        try await app.perform("suspend distributed true")
        #expect(try await app.answer(to: "show-suspended distributed") == "suspended true")
        for observer in 0...3 { try await app.perform("add distributed \(observer + 1) n - \(observer)") }
        for _ in 0..<3 { try await app.perform("post distributed n - - false") }
        #expect(try await app.everythingHeard() == [])
        try await app.perform("suspend distributed false")
        let heard = try await app.everythingHeard().map { $0.prefix(4) }
        #expect(heard.sorted() == ["by 1", "by 3", "by 4", "by 4", "by 4"])
    }

    // CF-P5, CF-P6, CF-S6, CF-S7
    @Test(
        "a suspended observer hears what is posted to be delivered immediately, and before it what waits",
        arguments: ["post distributed m - - true", "post-with-options distributed m - - 1"]
    )
    func immediately(command: String) async throws {
        try await app.perform("add distributed 1 - - 3", "suspend distributed true", "post distributed n - - false")
        #expect(try await app.everythingHeard() == [])
        try await app.perform(command)
        let names = try await app.everythingHeard().map { $0.contains("\"n\"") ? "n" : "m" }
        #expect(names == ["n", "m"])
        #expect(try await app.answer(to: "show-suspended distributed") == "suspended true")
    }

    // CF-P7, CF-B8
    @Test("on a bus of one session, a post to all sessions reaches that session, and the process reports that once")
    func allSessions() async throws {
        try await app.perform("add distributed 1 n - 2")
        for _ in 0..<2 { try await app.perform("post-with-options distributed n - - 2") }
        #expect(try await app.everythingHeard().count == 2)
        try await eventually("it is said") { app.failures.contains("could not post to all sessions") }
        #expect(app.failures.split(separator: "\n").count == 1)
    }

    // CF-P9, CF-P11
    @Test("a post without observers does nothing")
    func nobody() async throws {
        try await app.perform("post distributed n A text false")
        #expect(try await app.everythingHeard() == [])
        #expect(!app.failures.contains("CFNotificationCenter"))
    }

    // CF-D2
    @Test("registrations of both centers are in force again after the bus was killed and restarted")
    func busRestart() async throws {
        try await app.perform("add distributed 1 n A 2", "add darwin 2 d - 2")
        try bus.restart()
        let poster = try App(bus)
        for (post, heard) in [("distributed n A text", "by 1 from distributed"), ("darwin d - -", "by 2 from darwin")] {
            // The library reconnects in the background, so the first posts may come too early.
            try await eventually("“\(post)” is heard") {
                try await poster.perform("post \(post) false")
                return app.heard.contains { $0.hasPrefix(heard) }
            }
        }
    }

    // CF-P11
    @Test("without a bus, a post and a registration do nothing and report that")
    func noBus() async throws {
        bus.stop()
        try await app.perform("post distributed n - - false", "add distributed 1 n - 2")
        try await eventually("both are said") {
            app.failures.contains("CFNotificationCenterPostNotification: could not")
                && app.failures.contains("CFNotificationCenterAddObserver: could not")
        }
    }
}
