import DBus
import DeviceConfiguration
import Foundation
import Identity
@_spi(Extensions) import SharedDevice
import Testing
import simulate

@testable import BrokerCore

@Suite("The users who may sign in on the device")
struct AllowedUsersTests {
    private let device = VirtualDevice()
    private let desk: VirtualDevice.App

    init() {
        desk = device.app("desk")
        device.groups = ["grace": ["nurses"]]
        device.configure { $0.allowedUsers = AllowedUsers(users: ["Ada"], groups: ["nurses"]) }
    }

    private func allow(_ users: [String] = [], groups: [String] = []) {
        device.configure { $0.allowedUsers = AllowedUsers(users: users, groups: groups) }
    }

    @Test("a user is refused only after the right password, and another one may sign in")
    func refused() throws {
        let wrong = device.send(desk, VirtualDevice.signIn("eve", password: "wrong"))
        device.expectRefused(wrong, code: .authenticationFailed)
        device.expectRefused(device.send(desk, VirtualDevice.signIn("eve")), .userNotAllowed())
        device.expectSignedOutOnDisk()
        #expect(device.journal.allSatisfy { $0.event != .signedIn })
        #expect(device.state.ledger.sessions.isEmpty)
        // The name is allowed in any case.
        let name = try device.begin(by: desk)
        device.expectRefused(device.complete(name, "eve", by: desk), .userNotAllowed())
        try device.expectAnswer(device.complete(name, by: desk), "username", .string("ada"))
    }

    @Test("a configuration that no longer allows the user signs out, also after a restart")
    func configuration() throws {
        let session = try device.signIn("grace", by: desk)
        allow(groups: ["nurses", "doctors"])
        device.expectSignedIn()
        allow(["ada"], groups: ["doctors"])
        device.expectSignedOutOnDisk()
        #expect(device.signOutCauses.last?.contains("allowedUsers") == true)
        try device.expectOwed([session], by: desk)
        // The groups of the sign-in are stored.
        allow(groups: ["nurses"])
        try device.signIn("grace", by: desk)
        device.groups = [:]
        device.restart()
        device.expectPerson("grace")
        allow(groups: ["doctors"])
        device.expectSignedOut()
    }

    @Test("a configuration that no longer allows the user stops a sign-in's write")
    func writing() {
        device.diskMode = .holds
        let request = device.send(desk, VirtualDevice.signIn("grace"))
        allow(["ada"])
        device.resumeDisk()
        device.expectRefused(request, .userNotAllowed())
        device.expectSignedOutOnDisk()
    }

    @Test(
        "Linux users' names and groups are compared by bytes, others as a directory does",
        arguments: [
            ("uid-1000.t", "Ada", [], AllowedUsers(users: ["ada"]), false),
            ("uid-1000.t", "ada", [], AllowedUsers(users: ["ada"]), true),
            ("uid-1000.t", "Ame\u{301}lie", [], AllowedUsers(users: ["Am\u{e9}lie"]), false),
            ("7.t", "Ame\u{301}lie", [], AllowedUsers(users: ["AM\u{c9}LIE"]), true),
            ("7.t", "ada", ["Nurses"], AllowedUsers(groups: ["nurses"]), false),
            ("7.t", "ada", ["ame\u{301}"], AllowedUsers(groups: ["am\u{e9}"]), false),
            ("7.t", "ada", ["a", "nurses"], AllowedUsers(users: ["grace"], groups: ["nurses"]), true),
            ("7.t", "nurses", [], AllowedUsers(groups: ["nurses"]), false),
        ] as [(String, String, Set<String>, AllowedUsers, Bool)]
    )
    func comparison(identifier: String, name: String, groups: Set<String>, allowed: AllowedUsers, isAllowed: Bool) {
        #expect(allowed.admits(Account(identifier: identifier, username: name), groups) == isAllowed)
    }

    // MARK: The organisation's provider

    /// Ada is allowed by a group of the provider, and an app has her account.
    private func signInByGroup() throws -> UInt64 {
        try device.useOrganisation()
        device.provider.groups = .known(["nurses"])
        allow(groups: ["nurses"])
        let session = try device.signInAtProvider()
        _ = try device.session(for: device.till)
        return session
    }

    @Test(
        "groups that the provider does not give let no user in, and its session is ended",
        arguments: [PersonGroups.unknown(.elsewhere), .unknown(.malformed), .none]
    )
    func unknownGroups(groups: PersonGroups) throws {
        try device.useOrganisation()
        device.provider.groups = groups
        allow(groups: ["nurses"])
        let request = device.sendPage(try device.beginPage(), "ada")
        device.expectRefused(request, .userNotAllowed(groups))
        #expect(device.refusal(request)?.description.contains("claim groups") == (groups.flaw != nil))
        device.expectSignedOutOnDisk()
        device.expectEnds(of: ["ada"])
        // A user who is allowed by name needs no group.
        allow(["ada"])
        try device.signInAtProvider()
        device.expectPerson("ada")
    }

    @Test("the groups of the latest authentication are stored and decide")
    func newGroups() throws {
        let session = try signInByGroup()
        try device.demandPerson()
        device.provider.groups = .known(["nurses", "doctors"])
        let request = device.sendPage(try device.beginPage(), "ada")
        try device.expectAnswer(request, "username", .string("ada"))
        device.restart()
        allow(groups: ["doctors"])
        device.expectPerson("ada")
        for app in [device.prompt, device.identityService, device.till] { device.reconnect(app) }
        try device.demandPerson()
        device.provider.groups = .known(["guests"])
        device.expectRefused(device.sendPage(try device.beginPage(), "ada"), .userNotAllowed(.known(["guests"])))
        device.expectSignedOutOnDisk()
        #expect(device.signOutCauses.last?.contains("allowedUsers") == true)
        device.expectEnds(of: ["ada", "ada"])
        try device.expectOwed([session], by: device.till)
    }
}

@Suite("Apps that are for some users only")
struct AppUsersTests {
    private let device = VirtualDevice()
    private let desk: VirtualDevice.App
    /// An app for Grace and for doctors.
    private let ward: VirtualDevice.App

    init() {
        desk = device.app("org.example.desk")
        ward = device.app("org.example.ward")
        useWard(for: AllowedUsers(users: ["grace"], groups: ["doctors"]))
    }

    private func useWard(for allowed: AllowedUsers?) { device.use(.app("org.example.ward", allowed: allowed)) }

    @Test("to an app that is not for the user, the device looks signed out")
    func looksSignedOut() throws {
        let before = try device.ask(ward, .currentAccount)
        let session = try device.signIn("ada", by: desk)
        var expected = before
        expected["epoch"] = .uint64(session)
        #expect(try device.ask(ward, .currentAccount) == expected)
        device.expectRefused(device.send(ward, device.acquireToken(for: "ada")), .noCurrentAccount)
        let signOut = Request.Call.signOut(identifier: Account.named("ada").identifier, session: nil)
        device.expectRefused(device.send(ward, signOut), .noCurrentAccount)
        device.expectPerson("ada")
        try device.signOut(by: desk)
        try device.expectOwed([], by: ward)
        #expect(try device.round(session, by: desk)?.apps.map(\.identifier) == [VirtualDevice.key("org.example.desk")])
        // A group at the sign-in opens the app.
        device.groups = ["ada": ["doctors"]]
        try device.signIn("ada", by: desk)
        try device.expectAccount("ada", for: ward)
    }

    @Test("an app for the user gets the account, and owes its cleanup in later sessions")
    func owes() throws {
        let session = try device.signIn("grace", by: ward)
        try device.expectAccount("grace", for: ward)
        try device.signOut(by: ward)
        try device.signIn("ada", by: desk)
        device.configure { $0.cleanup = .strict }
        let answer = try device.session(for: ward)
        #expect(answer.session.account == nil && answer.owed.map(\.epoch) == [session] && !answer.isWithheld)
        try device.finish(ward)
        try device.expectOwed([], by: ward)
        try device.expectAccount(nil, for: ward)
    }

    @Test("neither an app nor its prompt signs in a user whom the app is not for")
    func signsIn() throws {
        device.expectRefused(device.send(ward, VirtualDevice.signIn("ada")), .appNotForUser)
        device.expectRefused(device.complete(try device.begin(by: ward), by: ward), .appNotForUser)
        device.expectSignedOutOnDisk()
        #expect(!Refusal.appNotForUser.description.contains("ada"))
        var wish = Request.PromptWish()
        wish.app = "org.example.ward"
        device.expectRefused(device.complete(try device.begin(wish)), .appNotForUser)
        device.expectSignedOutOnDisk()
        // Nor does the app learn by a reauthentication who is signed in.
        try device.signIn("ada", by: desk)
        wish.asksAgain = true
        device.expectRefused(device.send(device.prompt, .beginSignIn(wish)), code: .accountAlreadySignedIn)
    }

    @Test("a manifest that takes the app away stops its sign-in and its token in flight")
    func promptUnderWay() throws {
        useWard(for: nil)
        var wish = Request.PromptWish()
        wish.app = "org.example.ward"
        let name = try device.begin(wish)
        device.diskMode = .holds
        let request = device.complete(name)
        useWard(for: AllowedUsers(users: ["grace"]))
        device.expectRefused(request, .appNotForUser)
        device.resumeDisk()
        device.expectSignedOut()
        // A token that the directory issues afterwards is not handed out, and the session goes on.
        try device.signIn("grace", by: desk)
        device.holdsProvider = true
        let token = device.send(ward, device.acquireToken(for: "grace", []))
        useWard(for: AllowedUsers(users: ["ada"]))
        device.letProviderAnswer()
        device.expectRefused(token, .noCurrentAccount)
        device.expectSignedIn()
    }

    @Test("a manifest that takes the app from the user signs out, and the app cleans up", arguments: [false, true])
    func lostByManifest(isFirst: Bool) throws {
        // The first manifest of the app comes after the account.
        if isFirst { device.use() } else { useWard(for: AllowedUsers(users: ["ada"])) }
        let session = try device.signIn("ada", by: desk)
        try device.expectAccount("ada", for: ward)
        useWard(for: AllowedUsers(users: ["grace"]))
        if !isFirst {
            device.expectSignedOutOnDisk()
            #expect(device.signOutCauses.last?.contains("org.example.ward is not for the user any more") == true)
        }
        let answer = try device.session(for: ward)
        #expect(answer.session.account == nil && answer.owed.map(\.epoch) == [session])
        device.expectSignedOutOnDisk()
    }

    @Test("a manifest may take an app without the account away and give it back")
    func neverHeld() throws {
        try device.signIn("grace", by: desk)
        useWard(for: AllowedUsers(users: ["ada"]))
        device.expectSignedIn()
        try device.expectAccount(nil, for: ward)
        let before = device.announcements
        useWard(for: nil)
        device.expectAnnouncements(before + 1)
        try device.expectAccount("grace", for: ward)
    }

    @Test("an app that is not for the user neither begins nor continues a reauthentication")
    func reauthentication() throws {
        try device.useOrganisation()
        useWard(for: AllowedUsers(users: ["ada"]))
        try device.signInAtProvider()
        try device.demandPerson()
        let page = try device.beginPage(ward)
        useWard(for: AllowedUsers(users: ["grace"]))
        let starts = device.provider.starts.count
        #expect(throws: Refusal.accountAlreadySignedIn) { try device.beginPage(ward) }
        device.expectRefused(device.send(ward, device.answerPage(page, "ada")), .noSuchPrompt)
        #expect(device.provider.starts.count == starts)
        device.expectSignedIn()
    }

    @Test("a user who authenticates again gains and loses the apps of groups")
    func gainedByGroup() throws {
        try device.useOrganisation()
        useWard(for: AllowedUsers(groups: ["doctors"]))
        let session = try device.signInAtProvider()
        try device.expectAccount(nil, for: ward)
        try device.demandPerson()
        device.provider.groups = .known(["doctors"])
        let before = device.announcements
        try device.expectAnswer(device.sendPage(try device.beginPage(), "ada"), "username", .string("ada"))
        #expect(device.announcements > before)
        try device.expectAccount("ada", for: ward)
        // Without the group the user is signed out, because the app is open.
        try device.demandPerson()
        device.provider.groups = .none
        device.expectRefused(device.sendPage(try device.beginPage(), "ada"), .appNotForUser)
        device.expectSignedOutOnDisk()
        try device.expectOwed([session], by: ward)
    }
}
