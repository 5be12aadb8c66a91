import Foundation
import NotifyCenterTestKit
import Testing

@Suite("The distributed center, from C's functions")
struct CFDistributedCenterTests {
    private let app: App

    init() throws { app = try App() }

    // CF-A2, CF-A9, CF-D2, CF-D6, CF-P10, CF-T5
    @Test("callbacks run on the main thread with their arguments, in both processes")
    func delivery() async throws {
        let other = try App(app.bus)
        for app in [app, other] { try await app.perform("add distributed 7 - - 0") }
        try await app.perform(["post distributed n A text true", "post distributed m - - true"])
        for app in [app, other] {
            try await eventually("both are heard") { app.heard.count == 2 }
            #expect(
                app.heard == [
                    #"by 7 from distributed: "n", object "A", userInfo {"key": "text"}, main"#,
                    #"by 7 from distributed: "m", object NULL, userInfo NULL, main"#,
                ]
            )
        }
        #expect(!app.failures.contains("CFNotificationCenter"))
    }

    // CF-T6, CF-M3, CF-R2, CF-R3, CF-R5, CF-R8
    @Test("names and objects hold any Unicode, and a removal compares both")
    func unicode() async throws {
        let words = ["%00", "n%00x", "", "e%CC%81", "%F0%9F%98%80", "%EF%BB%BFn"]
        func call(_ word: String, _ object: String) -> String {
            let texts = [word, object].map { $0.removingPercentEncoding?.debugDescription ?? "" }
            return "by 1 from distributed: \(texts[0]), object \(texts[1]), userInfo NULL, main"
        }
        for word in words {
            try await app.perform([
                "add distributed 1 \(word) \(word) 2", "add distributed 1 \(word) other 2",
                "post distributed \(word) \(word) - false",
            ])
        }
        var expected = words.map { call($0, $0) }
        #expect(try await app.everythingHeard() == expected)
        for word in words {
            // Twice, because a removal of nothing has no effect.
            for _ in 0..<2 { try await app.perform("remove distributed 1 \(word) \(word)") }
            for object in [word, "other"] { try await app.perform("post distributed \(word) \(object) - false") }
        }
        expected += words.map { call($0, "other") }
        #expect(try await app.everythingHeard() == expected)
        try await app.perform(["remove-every distributed 1", "post distributed n%00x other - false"])
        #expect(try await app.everythingHeard() == expected)
    }

    // CF-R2, CF-R3, CF-R4, CF-R5, CF-R8
    @Test("a removal compares name and object and leaves other observers in place")
    func removing() async throws {
        try await app.perform([
            "add distributed 1 n - 2", "add distributed 1 n A 2", "add distributed 2 n A 2", "remove distributed 1 n A",
            "remove distributed 1 n A", "post distributed n A - false",
        ])
        #expect(try await app.everythingHeard().map { $0.prefix(4) } == ["by 1", "by 2"])
        try await app.perform([
            "remove-every distributed 1", "remove-every distributed 1", "post distributed n A - false",
        ])
        #expect(try await app.everythingHeard().map { $0.prefix(4) } == ["by 1", "by 2", "by 2"])
        try await app.perform(["remove distributed 2 - -", "post distributed n A - false"])
        #expect(try await app.everythingHeard().count == 3)
    }

    // CF-S1, CF-S3, CF-S4, CF-S5, CF-S8, CF-A7, CF-P5, CF-P6, CF-S6, CF-S7
    @Test("a suspension follows each behaviour, and immediate posts follow the backlog")
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
        for observer in 1...4 { try await app.perform("remove-every distributed \(observer)") }
        try await app.perform(["add distributed 1 - - 3", "suspend distributed true"])
        var expected: [String] = []
        for command in ["post distributed m - - true", "post-with-options distributed m - - 1"] {
            try await app.perform("post distributed n - - false")
            #expect(try await app.everythingHeard().count == heard.count + expected.count)
            try await app.perform(command)
            expected += ["n", "m"]
            let since = try await app.everythingHeard().dropFirst(heard.count)
            #expect(since.map { $0.contains("\"n\"") ? "n" : "m" } == expected)
        }
        #expect(try await app.answer(to: "show-suspended distributed") == "suspended true")
    }

    // CF-P11
    @Test("without a bus, posts and registrations fail and report it")
    func noBus() async throws {
        app.bus.stop()
        try await app.perform(["post distributed n - - false", "add distributed 1 n - 2"])
        try await eventually("both failures are reported") {
            app.failures.contains("CFNotificationCenterPostNotification: could not")
                && app.failures.contains("CFNotificationCenterAddObserver: could not")
        }
    }
}
