import DBus
import DeviceConfiguration
import Foundation
import Identity
@_spi(Extensions) import SharedDevice
import Testing
import simulate

@testable import BrokerCore

@Suite("Rights and reports of administrators and operators")
struct AdministrationTests {
    private let device = VirtualDevice()
    private let desk: VirtualDevice.App
    private let root: VirtualDevice.App

    private static let status = Request.Call.status(known: nil, patience: .zero)
    private static let signOut = Request.Call.signOutAnyone(identifier: nil, reason: "test")
    private static let waiver = Request.Call.waive(app: "a", user: nil, session: nil, reason: "test")
    private static let round = Request.Call.round(
        session: nil,
        after: nil,
        awaitsEnd: false,
        patience: .zero,
        isAdministration: true
    )

    init() {
        desk = device.app("desk", user: 1001)
        root = device.administrator
    }

    private func log(after: Int64? = nil, limit: Int = 100, patience: Duration = .zero) -> Request.Call {
        .log(after: after, limit: limit, patience: patience)
    }

    /// Sends a status request that waits up to 50 s for a change.
    private func awaitChange(by app: VirtualDevice.App) throws -> UInt64 {
        device.send(app, .status(known: try revision(), patience: .seconds(50)))
    }

    private func revision() throws -> UInt64? { try device.ask(root, Self.status)["revision"]?.unsignedValue }

    private func entries(_ fields: BrokerProtocol.Fields) -> [BrokerProtocol.Fields] {
        (fields["entries"]?.elementsValue ?? []).compactMap(\.fieldsValue)
    }

    // MARK: Rights (CO-2)

    @Test("FL-8, CO-2: operators read and sign out, but do not waive, join or leave")
    func operators() throws {
        device.configure { $0.operators = [1001] }
        let stranger = device.app("desk", user: 1002)
        try device.signIn("ada", by: device.app("a"))
        for call in [Self.status, Self.round, log()] {
            try device.ask(desk, call)
            device.expectRefused(device.send(stranger, call), .notPermitted)
        }
        device.expectRefused(device.send(stranger, Self.signOut), .notPermitted)
        device.expectSignedIn()
        try device.ask(desk, Self.signOut)
        device.expectSignedOut()
        let credentials = SignInRequest(username: "ada", password: nil)
        for call in [Self.waiver, .join(credentials), .leave(credentials)] {
            device.expectRefused(device.send(desk, call), .notPermitted)
        }
        device.configure { $0.operators = [] }
        device.expectRefused(device.send(desk, Self.status), .notPermitted)
    }

    @Test("only an administrator may have an account forgotten, which also signs it out")
    func forgottenAccount() throws {
        device.configure { $0.operators = [1001] }
        let session = try device.signIn("ada", by: desk)
        let identifier = try #require(device.state.device.account?.identifier)
        let call = Request.Call.forgetAccount(identifier: identifier.uppercased())
        device.expectRefused(device.send(desk, call), .notPermitted)
        device.expectSignedIn()
        try device.ask(root, call)
        device.expectSignedOut()
        #expect(device.state.ledger.sessions[session]?.account == nil)
        #expect(device.disk.sessions[session]?.account == nil)
    }

    @Test("a new configuration refuses the pending requests of former operators only")
    func formerOperators() throws {
        device.configure { $0.operators = [1001, 1002] }
        let present = device.app("desk", user: 1002)
        device.advance(by: .seconds(1))
        let logCall = log(after: Int64(device.disk.log.count), patience: .seconds(50))
        let theirs = [try awaitChange(by: desk), device.send(desk, logCall)]
        device.holdsProvider = true
        // The log is being read for this request.
        let reading = device.send(desk, logCall)
        let others = [present, root].map { device.send($0, logCall) }
        device.configure { $0.operators = [1002] }
        for request in theirs + [reading] { device.expectRefused(request, .notPermitted) }
        device.letProviderAnswer()
        for request in others { #expect(device.refusal(request) == nil) }
        // A sign-out gets its response all the same.
        device.configure { $0.operators = [1001] }
        try device.signIn("ada", by: device.app("a"))
        device.diskMode = .holds
        let request = device.send(desk, Self.signOut)
        device.configure { $0.operators = [] }
        device.resumeDisk()
        _ = try device.answer(request)
    }

    @Test("a change of the operators' group takes effect within a minute")
    func changedGroup() throws {
        device.members = ["%helpdesk": [1001]]
        device.configure { ($0.operatorNames, $0.operators) = (["%helpdesk"], [1001]) }
        let new = device.app("desk", user: 1002)
        try device.ask(desk, Self.status)
        device.expectRefused(device.send(new, Self.status), .notPermitted)
        #expect(device.lookUps == 0)
        device.members = ["%helpdesk": [1002]]
        device.advance(by: .seconds(61))
        device.expectRefused(device.send(desk, Self.status), .notPermitted)
        try device.ask(new, Self.status)
        #expect(device.lookUps == 1)
        // A call by root does not wait for the group look-up.
        device.advance(by: .seconds(61))
        device.holdsProvider = true
        let waiting = device.send(new, Self.status)
        try device.ask(root, Self.status)
        device.expectUnanswered(waiting)
        device.letProviderAnswer()
        _ = try device.answer(waiting)
    }

    @Test("a polkit permission covers one action, root needs none, and checks are limited")
    func polkit() throws {
        device.permitted = [.waive]
        try device.ask(desk, Self.waiver)
        device.expectRefused(device.send(desk, Self.status), .notPermitted)
        device.permitted = [.status]
        try device.ask(desk, Self.status)
        device.expectRefused(device.send(desk, Self.waiver), .notPermitted)
        device.send(desk, Self.status, isInteractive: true)
        #expect(device.polkitQuestions.map(\.0) == [.waive, .status, .status, .waive, .status])
        #expect(device.polkitQuestions.map(\.1) == [false, false, false, false, true])
        for call in [Self.status, Self.waiver, log()] { try device.ask(root, call) }
        #expect(device.polkitQuestions.count == 5)
        // A user has a limited number of checks, and those of a caller that disconnects are dropped.
        try device.signIn("ada", by: device.app("a"))
        device.holdsProvider = true
        let before = device.polkitQuestions.count
        device.permitted = [.signOut, .status]
        let requests = (0..<100).map { _ in device.send(desk, Self.signOut) }
        #expect(device.polkitQuestions.count == before + Administration.requestsOfUser)
        device.expectRefused(try #require(requests.last), .tooManyQuestions)
        device.quit(desk)
        device.expectRefused(requests[0], .requestAbandoned)
        device.letProviderAnswer()
        device.expectSignedIn()
    }

    // MARK: GetStatus (CO-1)

    @Test("the status names the account, its sign-in time, the policy and each app's data")
    func content() throws {
        device.use(AppManifest(identifier: "org.example.idle", identity: .init(executable: "/usr/bin/idle")))
        device.configure { $0.cleanup = CleanupPolicy(.strict, timeout: .seconds(90)) }
        let since = device.now.wall
        let first = try device.signIn("ada", by: desk)
        var status = try device.ask(root, Self.status)
        #expect(try Account(status["account"]).username == "ada")
        #expect(status["signedInAt"] == .double(since.timeIntervalSince1970))
        #expect(status["cleanupPolicy"] == .string("strict") && status["cleanupTimeout"] == .double(90))
        let key = VirtualDevice.key("desk", user: 1001)
        func app(_ name: String) -> BrokerProtocol.Fields? {
            status["apps"]?.elementsValue?.compactMap(\.fieldsValue).first { $0["identifier"]?.stringValue == name }
        }
        #expect(app(key)?["holdsData"] == .boolean(true) && app(key)?["isRunning"] == .boolean(true))
        #expect(app("org.example.idle")?.keys.sorted() == ["identifier"])
        try device.signOut(by: desk)
        device.quit(desk)
        status = try device.ask(root, Self.status)
        #expect(status["account"] == nil && status["signedInAt"] == nil)
        #expect(status["rounds"] == .array([.uint64(first)], of: "t"))
        #expect(app(key)?["owes"] == .array([.uint64(first)], of: "t") && app(key)?["isRunning"] == .boolean(false))
        let report = try CleanupReport(try device.ask(root, Self.round)["round"])
        #expect(report.session == first && report.owing.map(\.identifier) == [key])
    }

    @Test("a status request waits for a change or its patience, not counting polkit's time")
    func longPoll() throws {
        // The first request of an app is a change too.
        _ = try device.session(for: desk)
        let first = try awaitChange(by: root)
        device.expectUnanswered(first)
        try device.signIn("ada", by: desk)
        #expect(try device.answer(first)["account"] != nil)
        device.permitted = [.status]
        device.holdsProvider = true
        let (known, second) = (try revision(), try awaitChange(by: desk))
        device.advance(by: .seconds(60))
        device.letProviderAnswer()
        device.advance(by: .seconds(49))
        device.expectUnanswered(second)
        device.advance(by: .seconds(2))
        #expect(try device.answer(second)["revision"]?.unsignedValue == known)
        // A sign-in that is cancelled during its write is a change, too.
        try device.signOut(by: desk)
        device.advance(by: .seconds(1))
        device.diskMode = .holds
        device.send(desk, VirtualDevice.signIn("ada", label: "x"))
        let waiting = try awaitChange(by: root)
        try device.ask(desk, .cancelSignIn(label: "x"))
        #expect(try device.answer(waiting)["epoch"]?.unsignedValue == device.state.device.epoch)
    }

    // MARK: GetLog (CO-1, CO-6)

    @Test("the log is read from the end or after an entry, and names no person")
    func pages() throws {
        for _ in 0..<5 {
            try device.signIn("ada", by: desk)
            try device.signOut(by: desk)
            try device.finish(desk)
        }
        device.advance(by: .seconds(1))
        let newest = entries(try device.ask(root, log(limit: 3)))
        let last = UInt64(device.disk.log.count)
        #expect(newest.map { $0["sequence"]?.unsignedValue } == [last - 2, last - 1, last])
        let page = try device.ask(root, log(after: 2, limit: 2))
        #expect(entries(page).map { $0["sequence"]?.unsignedValue } == [3, 4])
        let all = entries(try device.ask(root, log(after: 0, limit: 500)))
        #expect(all.contains { $0["event"]?.stringValue == "signed-in" })
        #expect(!all.contains { "\($0)".contains("ada") })
    }

    @Test("a log request waits for entries or for its patience, and misses no entry")
    func logPoll() throws {
        device.advance(by: .seconds(1))
        let last = Int64(device.disk.log.count)
        let first = device.send(root, log(after: last, patience: .seconds(50)))
        device.expectUnanswered(first)
        try device.signIn("ada", by: desk)
        device.advance(by: .seconds(1))
        #expect(entries(try device.answer(first)).contains { $0["event"]?.stringValue == "signed-in" })
        let second = device.send(root, log(after: Int64(device.disk.log.count), patience: .seconds(50)))
        device.advance(by: .seconds(51))
        #expect(entries(try device.answer(second)).isEmpty)
        // Entries that are written while the log is being read.
        try device.signOut(by: desk)
        device.advance(by: .seconds(1))
        device.holdsProvider = true
        let request = device.send(root, log(after: Int64(device.disk.log.count), patience: .seconds(50)))
        device.holdsProvider = false
        try device.signIn("ada", by: desk)
        device.advance(by: .seconds(1))
        device.feed(.logRead(request, .success([])))
        #expect(!entries(try device.answer(request)).isEmpty)
    }
}
