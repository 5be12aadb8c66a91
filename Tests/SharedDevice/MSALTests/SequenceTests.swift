import Basics
import Dispatch
import Foundation
import MSAL
import NotifyCenterTestKit
import Synchronization
import Testing

enum Step: Sendable {
    case signIn(String)
    case signOut
    /// The app asks, and must get this response: “current previous”.
    case ask(String)
    /// The broker is killed, and the app's request fails.
    case askInVain
}

@Suite("The response to a request for the current account")
struct SequenceTests {
    private let device: DeviceOnPrivateBus
    private let control: ControlApp

    init() async throws {
        device = try await DeviceOnPrivateBus()
        control = ControlApp(on: device)
    }

    /// An app that has been told of ada's sign-in, and not yet of her sign-out.
    private func appThatMissedSignOut() async throws -> MSALPublicClientApplication {
        let app = try device.msalApplication()
        try await control.signIn("ada")
        _ = try await app.told()
        try await control.signOut()
        return app
    }

    private static let rows: [[Step]] = [
        [.ask("- -")],
        [.signIn("ada"), .ask("ada -")],
        [.signIn("ada"), .ask("ada -"), .ask("ada ada")],
        [.signIn("ada"), .ask("ada -"), .signOut, .ask("- ada")],
        [.signIn("ada"), .ask("ada -"), .signOut, .ask("- ada"), .ask("- -")],
        [.signIn("ada"), .ask("ada -"), .signOut, .signIn("grace"), .ask("grace ada"), .ask("grace grace")],
        [.signIn("ada"), .ask("ada -"), .signOut, .signIn("ada"), .ask("ada ada")],
        [.signIn("ada"), .ask("ada -"), .signOut, .signIn("grace"), .signOut, .ask("- ada"), .ask("- -")],
        [.signIn("ada"), .ask("ada -"), .signOut, .askInVain, .ask("- ada"), .ask("- -")],
    ]

    @Test("the real broker agrees with MSAL's table")
    func table() async throws {
        for (number, row) in Self.rows.enumerated() {
            let app = try device.msalApplication("row\(number)")
            for step in row {
                switch step {
                case .signIn(let user): try await control.signIn(user)
                case .signOut: try await control.signOut()
                case .ask(let expected): #expect(try await app.told() == expected, "\(row)")
                case .askInVain:
                    device.killBroker()
                    #expect(await codes { _ = try await app.told() } == .internal(.internalBrokerNotAvailable))
                    try await device.startBroker()
                }
            }
            // Each row starts without an account.
            if try await control.current != nil { try await control.signOut() }
        }
    }

    @Test("a change reported right before a crash is reported once more")
    func crash() async throws {
        try await control.signIn("ada")
        // A new object for each start of the app: only the file connects them.
        #expect(try await device.endedApplication { try await $0.told() } == "ada -")
        try await control.signOut()
        #expect(try await device.endedApplication { try await $0.told() } == "- ada")
        let restarted = try device.msalApplication()
        for answer in ["- ada", "- -"] { #expect(try await restarted.told() == answer) }
        #expect(try await device.msalApplication().told() == "- -")
    }

    /// Each of these accounts is reported to another process of the app, which ends at once.
    private func leaveDebts(of users: [String]) async throws {
        for user in users {
            try await control.signIn(user)
            _ = try await device.endedApplication { try await $0.told() }
            try await control.signOut()
        }
    }

    @Test("accounts with remaining data are reported one by one, also after a return")
    func several() async throws {
        try await leaveDebts(of: ["ada", "grace"])
        let told = try await device.endedApplication { app in
            [try await app.told(), try await app.told(), try await app.told()]
        }
        #expect(told == ["- grace", "- ada", "- -"])
        try await leaveDebts(of: ["grace", "ada"])
        try await control.signIn("ada")
        let app = try device.msalApplication()
        for answer in ["ada grace", "ada ada"] { #expect(try await app.told() == answer) }
    }

    @Test("a request during the block's deletion does not settle the block's change")
    func whileDeleting() async throws {
        let app = try await appThatMissedSignOut()
        let isDeleting = Locked(false)
        let mayEnd = DispatchSemaphore(value: 0)
        app.getCurrentAccount(with: nil) { _, _, _ in
            isDeleting.withLock { $0 = true }
            mayEnd.wait()
        }
        defer { mayEnd.signal() }
        try await eventually("the block runs") { isDeleting.withLock { $0 } }
        #expect(try await app.told() == "- ada")
        // Another process of the app still gets the change, as after a crash in the block.
        #expect(try await device.msalApplication().told() == "- ada")
    }

    // S13
    @Test("a token request settles the reported change, but not if another task sends it")
    func settledByToken() async throws {
        let app = try await appThatMissedSignOut()
        #expect(try await app.told() == "- ada")
        // This task is still deleting ada's data.
        _ = try await Task { try await app.signIn("grace") }.value
        #expect(try await device.msalApplication().told() == "grace ada")
        #expect(try await app.told() == "grace grace", "the app's next request settles the change")
        try await control.signOut()
        #expect(try await app.told() == "- grace")
        try await app.signIn("ada")
        #expect(try await device.msalApplication().told() == "ada -")
    }

    @Test("an app that reports cleanups is told until it has reported")
    func receipts() async throws {
        func reports(_ configuration: MSALPublicClientApplicationConfig) { configuration.reportsCleanup = true }
        func expectDebt(_ app: MSALPublicClientApplication, of ada: MSALAccount?) async throws {
            let (current, previous) = try await app.currentAccount(with: nil)
            #expect(current == ada && previous == ada && previous?.needsCleanup == true)
        }
        try await control.signIn("ada")
        let ada = try await device.endedApplication(configure: reports) { app in
            let (ada, nobody) = try await app.currentAccount(with: nil)
            #expect(ada?.needsCleanup == false && nobody == nil)
            try await control.signOut()
            try await control.signIn("ada")
            try await expectDebt(app, of: ada)
            return ada
        }
        try await device.endedApplication(configure: reports) { try await expectDebt($0, of: ada) }
        let app = try device.msalApplication(configure: reports)
        let previous = try #require(try await app.currentAccount(with: nil).1)
        try await app.cleanupDone(of: previous)
        let (current, clean) = try await app.currentAccount(with: nil)
        #expect(current == ada && clean?.needsCleanup != true)
        // The same with a completion block, and with a sign-out instead of a return.
        try await control.signOut()
        let left = try #require(try await app.currentAccount(with: nil).1)
        #expect(left.needsCleanup)
        #expect(try await app.told() == "- ada")
        let done = Locked(false)
        app.cleanupDone(of: left) { success, error in done.withLock { $0 = success && error == nil } }
        try await eventually("the receipt is given") { done.withLock { $0 } }
        #expect(try await app.told() == "- -")
    }

    @Test("the same person's return is settled only by a receipt or the next change")
    func hidden() async throws {
        let app = try await appThatMissedSignOut()
        try await control.signIn("ada")
        for _ in 0..<2 {
            let (current, previous) = try await app.currentAccount(with: nil)
            #expect(current == previous && previous?.needsCleanup == true)
        }
        try await control.signOut()
        #expect(try await app.told() == "- ada")
        #expect(try await app.told() == "- -")
    }

    // E10
    @Test("overlapping requests lose no change and invent none")
    func overlapping() async throws {
        let app = try await appThatMissedSignOut()
        let answers = try await withThrowingTaskGroup(of: String.self) { group in
            for _ in 0..<16 { group.addTask { try await app.told() } }
            return try await group.reduce(into: []) { $0.append($1) }
        }
        #expect(answers.contains("- ada") && Set(answers).isSubset(of: ["- ada", "- -"]))
        #expect(try await app.told() == "- -")
    }
}
