import NotifyCenterTestKit
import Testing

@Suite("The Darwin notify center, from C's functions")
struct CFDarwinCenterTests {
    private let app: App

    init() throws { app = try App() }

    // CF-D2, CF-D7, CF-M6, CF-A8, CF-U4, CF-W1, CF-P10
    @Test("only the name matters and only the name arrives, on the main thread")
    func nameOnly() async throws {
        let other = try App(app.bus)
        for app in [app, other] { try await app.perform("add darwin 1 n hello-aaa 9") }
        try await app.perform("post darwin n number set-inside false")
        for app in [app, other] {
            try await eventually("it is heard") { app.heard.count == 1 }
            #expect(app.heard == [#"by 1 from darwin: "n", object NULL, userInfo NULL, main"#])
        }
        #expect(!app.failures.contains("CFNotificationCenter"))
    }

    // CF-S13
    @Test("it is never suspended")
    func suspension() async throws {
        try await app.perform(["add darwin 1 n - 1", "suspend darwin true"])
        #expect(try await app.answer(to: "show-suspended distributed") == "suspended false")
        try await app.perform(["suspend distributed true", "post darwin n - - false"])
        #expect(try await app.everythingHeard().count == 1)
        #expect(try await app.answer(to: "show-suspended darwin") == "suspended false")
    }
}
