import NotifyCenterTestKit
import Testing

@Suite("Arguments that the functions refuse")
struct MisuseTests {
    private let app: App

    init() throws { app = try App() }

    // CF-A1, CF-A3, CF-P1, CF-R1
    @Test("a NULL without a meaning has no effect; a missing observer or name is reported")
    func null() async throws {
        try await app.perform([
            "add NULL 1 n - 2", "remove NULL 1 n -", "remove-every NULL 1", "post NULL n - - true",
            "post-with-options NULL n - - 0", "suspend NULL true",
        ])
        #expect(try await app.answer(to: "show-suspended NULL") == "suspended false")
        #expect(!app.failures.contains("CFNotificationCenter"))
        let centers = ["local", "darwin", "distributed"]
        for center in centers {
            try await app.perform([
                "add \(center) 1 n - 2", "add \(center) 0 n - 2", "add-without-callback \(center) 2 n - 2",
                "remove \(center) 0 n -", "remove-every \(center) 0", "post \(center) - - - true",
                "post-with-options \(center) - - - 0", "post \(center) n - - false",
            ])
        }
        let heard = try await app.everythingHeard().map { String($0.prefix { $0 != ":" }) }
        // Observer 0 is NULL, and cannot be removed.
        #expect(heard.sorted() == [0, 1].flatMap { observer in centers.map { "by \(observer) from \($0)" } }.sorted())
        for (function, argument) in [
            ("RemoveObserver", "observer"), ("RemoveEveryObserver", "observer"),
            ("PostNotification", "name"), ("PostNotificationWithOptions", "name"),
        ] {
            try await eventually("CFNotificationCenter\(function) reports it for each center") {
                app.failures.split(separator: "\n").count { line in
                    line.hasPrefix("CFNotificationCenter\(function): ") && line.contains("there is no \(argument),")
                } == centers.count
            }
        }
    }

    @Test("an object that is not a center has no effect and is reported")
    func foreignCenter() async throws {
        let calls = [
            ("add foreign 1 n - 2", "CFNotificationCenterAddObserver"),
            ("remove foreign 1 n -", "CFNotificationCenterRemoveObserver"),
            ("remove-every foreign 1", "CFNotificationCenterRemoveEveryObserver"),
            ("post foreign n - - true", "CFNotificationCenterPostNotification"),
            ("post-with-options foreign n - - 0", "CFNotificationCenterPostNotificationWithOptions"),
            ("suspend foreign true", "_CFNotificationCenterSetSuspended"),
            ("show-suspended foreign", "_CFNotificationCenterIsSuspended"),
        ]
        for (command, _) in calls { try await app.perform(command) }
        let expected = calls.map { "\($0.1): center is an object that is not a notification center" }
        try await eventually("all are reported") { app.failures.split(separator: "\n").count >= expected.count }
        for (line, report) in zip(app.failures.split(separator: "\n"), expected) { #expect(line.hasPrefix(report)) }
    }

    // CF-X6
    @Test("the distributed center ignores and reports an object that is not a CFString")
    func object() async throws {
        try await app.perform(["add distributed 1 n number 2", "post distributed n A - false"])
        #expect(try await app.everythingHeard() == [])
        try await app.perform([
            "add distributed 2 n - 2", "remove distributed 2 n number", "post distributed n - - false",
        ])
        #expect(try await app.everythingHeard().map { $0.prefix(4) } == ["by 2"])
        try await eventually("both are reported") {
            app.failures.contains("CFNotificationCenterAddObserver: object is a CFNumber")
                && app.failures.contains("CFNotificationCenterRemoveObserver: object is a CFNumber")
        }
    }

    // CF-M3, CF-X6
    @Test("a name that is not Unicode has no effect and is reported")
    func surrogate() async throws {
        for center in ["local", "darwin", "distributed"] {
            try await app.perform([
                "add \(center) 1 surrogate - 2", "add \(center) 2 - - 2", "add \(center) 3 %EF%BF%BD - 2",
                "post \(center) surrogate - - false", "remove \(center) 2 surrogate -", "post \(center) n - - false",
            ])
        }
        // The Darwin center has no observers of any name (CF-A8).
        let heard = try await app.everythingHeard().map { String($0.prefix { $0 != "," }) }
        #expect(heard.sorted() == [#"by 2 from distributed: "n""#, #"by 2 from local: "n""#])
        let reason = "name is a text with an unpaired surrogate, which is not Unicode"
        try await eventually("all are reported") {
            ["AddObserver", "RemoveObserver", "PostNotification"].allSatisfy { function in
                app.failures.split(separator: "\n").count { $0.hasPrefix("CFNotificationCenter\(function): \(reason)") }
                    == 3
            }
        }
    }

    // CF-T7
    @Test("an unknown suspension behaviour registers with the default and is reported")
    func behavior() async throws {
        try await app.perform(["add distributed 1 n - 9", "suspend distributed true"])
        for _ in 0..<3 { try await app.perform("post distributed n - - false") }
        #expect(try await app.everythingHeard() == [])
        try await app.perform("suspend distributed false")
        #expect(try await app.everythingHeard().count == 1)
        try await eventually("it is reported") {
            app.failures.contains("suspensionBehavior is 9, which is not a suspension behavior")
        }
    }
}
