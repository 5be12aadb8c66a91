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

    @Test("a user is refused only after the right password, and leaves no session in the log")
    func refused() throws {
        let wrong = device.send(desk, VirtualDevice.signIn("eve", password: "wrong"))
        device.expectRefused(wrong, code: .authenticationFailed)
        device.expectRefused(device.send(desk, VirtualDevice.signIn("eve")), .userNotAllowed())
        device.expectSignedOutOnDisk()
        #expect(device.journal.allSatisfy { $0.event != .signedIn })
        #expect(device.state.ledger.sessions.isEmpty)
    }

    @Test("a user is allowed by name in any case, or by a group", arguments: ["ada", "grace"])
    func allowed(name: String) throws {
        try device.signIn(name, by: desk)
        device.expectPerson(name)
    }

    @Test("after a refusal another user may sign in at the same prompt")
    func prompt() throws {
        let name = try device.begin(by: desk)
        device.expectRefused(device.complete(name, "eve", by: desk), .userNotAllowed())
        try device.expectAnswer(device.complete(name, by: desk), "username", .string("ada"))
    }

    @Test("a configuration that no longer allows the user signs out, and the apps have to clean up")
    func configuration() throws {
        let session = try device.signIn("grace", by: desk)
        allow(groups: ["nurses", "doctors"])
        device.expectSignedIn()
        allow(["ada"], groups: ["doctors"])
        device.expectSignedOutOnDisk()
        #expect(device.signOutCauses.last?.contains("allowedUsers") == true)
        try device.expectOwed([session], by: desk)
    }

    @Test("the groups of the sign-in count after a restart of the broker, too")
    func restart() throws {
        try device.signIn("grace", by: desk)
        device.groups = [:]
        device.restart()
        device.expectPerson("grace")
        allow(groups: ["doctors"])
        device.expectSignedOut()
    }

    @Test("a configuration that no longer allows the user stops a sign-in that is being written")
    func writing() {
        device.diskMode = .holds
        let request = device.send(desk, VirtualDevice.signIn("grace"))
        allow(["ada"])
        device.resumeDisk()
        device.expectRefused(request, .userNotAllowed())
        device.expectSignedOutOnDisk()
    }

    @Test(
        "names of Linux users are compared byte by byte, other names as a directory does, and groups byte by byte",
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
        arguments: [
            PersonGroups.unknown(.elsewhere), .unknown(.malformed), .none,
        ]
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

    @Test("a user who authenticates again without the group is refused and signed out")
    func lostGroup() throws {
        let session = try signInByGroup()
        try device.demandPerson()
        device.provider.groups = .known(["guests"])
        device.expectRefused(device.sendPage(try device.beginPage(), "ada"), .userNotAllowed(.known(["guests"])))
        device.expectSignedOutOnDisk()
        #expect(device.signOutCauses.last?.contains("allowedUsers") == true)
        device.expectEnds(of: ["ada", "ada"])
        try device.expectOwed([session], by: device.till)
    }

    @Test("the groups of the latest authentication are stored")
    func newGroups() throws {
        _ = try signInByGroup()
        try device.demandPerson()
        device.provider.groups = .known(["nurses", "doctors"])
        let request = device.sendPage(try device.beginPage(), "ada")
        try device.expectAnswer(request, "username", .string("ada"))
        device.restart()
        allow(groups: ["doctors"])
        device.expectPerson("ada")
        allow(groups: ["guests"])
        device.expectSignedOut()
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

    @Test("to an app that is not for the user, the device looks as if no account were signed in")
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
    }

    @Test("an app for the user gets the account, and owes its cleanup also while another user is signed in")
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

    @Test("an app cannot sign in a user whom it is not for, and is not told the name")
    func signsIn() throws {
        device.expectRefused(device.send(ward, VirtualDevice.signIn("ada")), .appNotForUser)
        device.expectRefused(device.complete(try device.begin(by: ward), by: ward), .appNotForUser)
        device.expectSignedOutOnDisk()
        #expect(!Refusal.appNotForUser.description.contains("ada"))
    }

    @Test("a prompt that an app has started refuses a user whom the app is not for")
    func signsInAtPrompt() throws {
        var wish = Request.PromptWish()
        wish.app = "org.example.ward"
        device.expectRefused(device.complete(try device.begin(wish)), .appNotForUser)
        device.expectSignedOutOnDisk()
        // Nor does the app learn by a reauthentication who is signed in.
        try device.signIn("ada", by: desk)
        wish.asksAgain = true
        device.expectRefused(device.send(device.prompt, .beginSignIn(wish)), code: .accountAlreadySignedIn)
    }

    @Test("a manifest that takes the app from the user stops a sign-in at its prompt that is being written")
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
    }

    @Test("a group at the sign-in opens an app")
    func group() throws {
        device.groups = ["ada": ["doctors"]]
        try device.signIn("ada", by: desk)
        try device.expectAccount("ada", for: ward)
    }

    @Test("a manifest that takes the app from the user signs out, and the app has to clean up")
    func lostByManifest() throws {
        let session = try device.signIn("grace", by: desk)
        try device.expectAccount("grace", for: ward)
        useWard(for: AllowedUsers(users: ["ada"]))
        device.expectSignedOutOnDisk()
        #expect(device.signOutCauses.last?.contains("org.example.ward is not for the user any more") == true)
        try device.expectOwed([session], by: ward)
    }

    @Test("a manifest that takes away an app without the account does not sign out")
    func neverHeld() throws {
        try device.signIn("grace", by: desk)
        useWard(for: AllowedUsers(users: ["ada"]))
        device.expectSignedIn()
        try device.expectAccount(nil, for: ward)
    }

    @Test("an app that a new manifest opens for the user is told to ask, and gets the account")
    func gained() throws {
        try device.signIn("ada", by: desk)
        try device.expectAccount(nil, for: ward)
        let before = device.announcements
        useWard(for: nil)
        device.expectAnnouncements(before + 1)
        try device.expectAccount("ada", for: ward)
    }

    @Test("a token that the directory issues after the app was taken away is not handed out")
    func tokenUnderWay() throws {
        try device.signIn("grace", by: desk)
        device.holdsProvider = true
        let request = device.send(ward, device.acquireToken(for: "grace", []))
        useWard(for: AllowedUsers(users: ["ada"]))
        device.letProviderAnswer()
        device.expectRefused(request, .noCurrentAccount)
        device.expectSignedIn()
    }

    @Test("an app whose manifest comes after the account is bound by it")
    func lateManifest() throws {
        device.use()
        let session = try device.signIn("ada", by: desk)
        try device.expectAccount("ada", for: ward)
        useWard(for: AllowedUsers(users: ["grace"]))
        let answer = try device.session(for: ward)
        #expect(answer.session.account == nil && answer.owed.map(\.epoch) == [session])
        device.expectSignedOutOnDisk()
    }

    @Test("an app that is not for the user can neither begin nor continue the user's reauthentication")
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

    @Test("a user who authenticates again without the group of an open app is signed out")
    func lostByGroup() throws {
        try device.useOrganisation()
        useWard(for: AllowedUsers(groups: ["doctors"]))
        device.provider.groups = .known(["doctors"])
        let session = try device.signInAtProvider()
        try device.expectAccount("ada", for: ward)
        try device.demandPerson()
        device.provider.groups = .none
        device.expectRefused(device.sendPage(try device.beginPage(), "ada"), .appNotForUser)
        device.expectSignedOutOnDisk()
        try device.expectOwed([session], by: ward)
    }

    @Test("a user who authenticates again with a new group gets the group's apps in the same session")
    func gainedByGroup() throws {
        try device.useOrganisation()
        useWard(for: AllowedUsers(groups: ["doctors"]))
        try device.signInAtProvider()
        try device.expectAccount(nil, for: ward)
        try device.demandPerson()
        device.provider.groups = .known(["doctors"])
        let before = device.announcements
        try device.expectAnswer(device.sendPage(try device.beginPage(), "ada"), "username", .string("ada"))
        #expect(device.announcements > before)
        try device.expectAccount("ada", for: ward)
    }
}
