import Basics
import DeviceConfiguration
import DeviceStorage
import EmbeddedIdentity
import Foundation
import Glibc
import Identity
import NotifyCenterTestKit
import SharedDevice
import Testing

@testable import BrokerCore

@Suite("shared-device user")
struct UserCommandTests {
    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory() }

    private func run(
        _ arguments: String...,
        input: String = "",
        preparation: String = ""
    ) async throws -> Program.Outcome {
        try await Program.sharedDevice.run(
            ["user"] + arguments + ["--state", directory.state],
            input: input,
            preparation: preparation
        )
    }

    /// Adds a user without the program, whose password hash is slow.
    private func add(_ name: String) throws {
        _ = try directory.users().add(username: name, password: Secret("correct horse"))
    }

    @Test("user add and user password read the first line of standard input")
    func add() async throws {
        let (name, words) = ("ada@example.com", "correct horse\nsecond line\n")
        let outcome = try await run("add", name, "--display-name", "Ada Lovelace", "--password-stdin", input: words)
        #expect(outcome.status == 0 && outcome.errors == "")
        let user = try #require(try directory.users().user(named: name))
        #expect(user.account.displayName == "Ada Lovelace")
        #expect(outcome.output == "added ada@example.com (\(user.account.identifier))\n")
        #expect(try directory.users().isPassword("correct horse", of: name))
        // A new password replaces the old one, and needs no newline.
        #expect(try await run("password", name, "--password-stdin", input: "battery staple").status == 0)
        let users = try directory.users()
        #expect(try users.isPassword("battery staple", of: name) && !users.isPassword("correct horse", of: name))
    }

    @Test("user badge and user pin give and take, and the list shows who has what")
    func badges() async throws {
        try add("ada")
        try add("grace")
        let badge = try await run("badge", "ADA", "--stdin", input: "0041-ada\r\n")
        #expect(badge.output == "set the badge of ada\n" && badge.errors.contains("shared-device user pin ada"))
        #expect(try await run("list").output.contains("  badge  "))
        #expect(try await run("pin", "ada", "--stdin", input: "1234").output == "set the PIN of ada\n")
        #expect(try await run("list").output.contains("  badge, PIN  "))
        let taken = try await run("badge", "grace", "--stdin", input: "0041-ada")
        #expect(taken.status == EX_CANTCREAT && taken.errors.contains("is the badge of ada"))
        #expect(try await run("pin", "ada", "--stdin", input: "12a4").status == EX_DATAERR)
        #expect(try await run("badge", "joan", "--stdin", input: "0042").status == EX_NOUSER)
        #expect(try await run("badge", "ada", "--stdin", "--remove").status == EX_USAGE)
        #expect(try await run("badge", "ada").errors.contains("--stdin"), "there is no terminal")
        #expect(try await credentials() == ["true true", "false false"])
        #expect(try await run("badge", "ada", "--remove").output == "ada has no badge now\n")
        #expect(try await run("pin", "ada", "--remove").output == "ada has no PIN now\n")
        #expect(try await credentials() == ["false false", "false false"])
        try directory.expectNone(of: "0041-ada")
    }

    /// Whether each user has a badge and a PIN.
    private func credentials() async throws -> [String] {
        struct User: Decodable { let badge: Bool, pin: Bool }
        let output = try await run("list", "--json").output
        return try JSONDecoder().decode([User].self, from: Data(output.utf8)).map { "\($0.badge) \($0.pin)" }
    }

    @Test("the state is private to its owner for any umask", arguments: ["000", "777"])
    func umask(_ umask: String) async throws {
        let (input, preparation) = ("correct horse\n", "umask \(umask)")
        let outcome = try await run("add", "ada", "--password-stdin", input: input, preparation: preparation)
        #expect(outcome.status == 0 && mode(of: directory.state) == 0o700, "\(outcome.errors)")
        let names = try FileManager.default.contentsOfDirectory(atPath: directory.state)
        #expect(names.contains(DeviceDatabase.fileName))
        for name in names { #expect(mode(of: directory.state + "/" + name) == 0o600, "\(name)") }
    }

    @Test("list prints a table or JSON and marks disabled users")
    func list() async throws {
        try add("grace")
        try add("ada@example.com")
        // User names ignore case.
        #expect(try await run("disable", "GRACE").status == 0)
        let table = try await run("list").output.split(separator: "\n")
        try #require(table.count == 3)
        #expect(table[1].hasPrefix("ada@example.com  ") && table[1].contains("  enabled  "))
        #expect(table[2].contains("  disabled  "))

        struct User: Decodable {
            let identifier: String
            let username: String
            let disabled: Bool
            let signedIn: Bool
            let createdAt: Date
        }
        let decoder = JSONDecoder()
        decoder.dateDecodingStrategy = .iso8601
        let users = try decoder.decode([User].self, from: Data(try await run("list", "--json").output.utf8))
        #expect(users.map { "\($0.username) \($0.disabled)" } == ["ada@example.com false", "grace true"])
        #expect(users.allSatisfy { !$0.signedIn && abs($0.createdAt.timeIntervalSinceNow) < 600 })
        #expect(try await run("enable", "grace").status == 0)
        #expect(try await !run("list").output.contains("disabled"))
    }

    @Test("user groups shows the groups, replaces them, and clears them only with --none")
    func groups() async throws {
        try add("ada")
        #expect(try await run("groups", "ada").output == "ada is in no group\n")
        #expect(try await run("groups", "ADA", "nurses", "ward 7").output == "ada is in the groups nurses, ward 7\n")
        #expect(try await run("groups", "ada").output == "ada is in the groups nurses, ward 7\n")
        #expect(try await run("list").output.contains("  nurses, ward 7  "))
        #expect(try await run("groups", "ada", "nurses", "--none").status == EX_USAGE)
        #expect(try await run("groups", "ada", " nurses").status == EX_DATAERR)
        #expect(try await run("groups", "grace").status == EX_NOUSER)
        #expect(try await run("groups", "ada", "--none").output == "ada is in no group\n")
        #expect(try directory.users().user(named: "ada")?.groups == [])
    }

    @Test("a signed-in user is only disabled, with a warning; a removed user is erased")
    func signedIn() async throws {
        try add("ada")
        let database = try DeviceDatabase(directory: directory.state)
        let account = try #require(try UserDirectory(database: database).user(named: "ada")).account
        let epoch = try database.device().epoch
        try database.save(DeviceState(mode: .shared, account: nil, epoch: epoch + 1))
        try database.save(DeviceState(mode: .shared, account: account, epoch: epoch + 2))
        let removal = try await run("remove", "ada")
        let remedy = "ada is signed in on this device; sign the account out first"
        #expect(removal.status == EX_TEMPFAIL && removal.errors.contains(remedy), "\(removal)")
        #expect(try await run("list").output.contains("enabled, signed in"))
        let disabling = try await run("disable", "ada")
        #expect(disabling.status == 0 && disabling.errors.contains("ada is signed in on this device"))
        let grouping = try await run("groups", "ada", "nurses")
        #expect(grouping.status == 0 && grouping.errors.contains("count from the next sign-in on"))
        // The name of a removed user is erased. A variable may name the state directory.
        try add("grace.hopper")
        let outcome = try await Program.sharedDevice.run(
            ["user", "remove", "grace.hopper"],
            environment: ["SHARED_DEVICE_STATE": directory.state]
        )
        #expect(outcome.output == "removed grace.hopper\n", "\(outcome.errors)")
        try directory.expectNone(of: "grace.hopper")
    }

    @Test("each failure has its exit status and prints one line on standard error")
    func failures() async throws {
        try add("ada")
        let outcomes: [(Program.Outcome, CInt)] = [
            (try await run("add", "ADA", "--password-stdin", input: "correct horse\n"), EX_CANTCREAT),
            (try await run("add", "grace", "--password-stdin", input: "short\n"), EX_DATAERR),
            (try await run("add", "gr ace", "--password-stdin", input: "correct horse\n"), EX_DATAERR),
            (try await run("add", "grace", "--password-stdin"), EX_NOINPUT),
            (try await run("add", "grace"), EX_USAGE),
            (try await run("password", "grace", "--password-stdin", input: "correct horse\n"), EX_NOUSER),
            (try await run("remove", "grace"), EX_NOUSER),
            (try await run("disable", "grace"), EX_NOUSER),
            (try await run("enable", "grace"), EX_NOUSER),
        ]
        for (number, (outcome, status)) in outcomes.enumerated() {
            #expect(outcome.status == status && outcome.output == "", "number \(number): \(outcome)")
            let isOneLine = outcome.errors.hasPrefix("shared-device: ") && outcome.errors.count { $0 == "\n" } == 1
            #expect(isOneLine, "number \(number): \(outcome.errors)")
        }
        #expect(try directory.users().users().count == 1)
        for words in [["add"], ["rename", "ada", "grace"]] {
            #expect(try await Program.sharedDevice.run(["user"] + words).status == EX_USAGE)
        }
    }

    @Test("a missing state directory is not created, and a world-writable one is refused")
    func badState() async throws {
        for outcome in [try await run("list"), try await run("remove", "ada")] {
            #expect(outcome.status == EX_NOINPUT && outcome.errors.contains(directory.state))
        }
        #expect(mode(of: directory.state) == nil)
        mkdir(directory.state, 0o700)
        chmod(directory.state, 0o777)
        let outcome = try await run("add", "ada", "--password-stdin", input: "correct horse\n")
        #expect(outcome.status == EX_NOPERM && outcome.errors.contains("chmod 700"))
    }

    @Test("concurrent commands on a new device all take effect")
    func atTheSameTime() async throws {
        async let first = run("add", "user1", "--password-stdin", input: "correct horse\n")
        async let second = run("add", "user2", "--password-stdin", input: "correct horse\n")
        async let third = run("add", "user3", "--password-stdin", input: "correct horse\n")
        let outcomes = try await [first, second, third]
        #expect(outcomes.map { "\($0.status)\($0.errors)" } == ["0", "0", "0"])
        let users = try directory.users().users()
        #expect(users.count == 3 && Set(users.map(\.account.tenantIdentifier)).count == 1)
    }
}

@Suite("Version of the programs")
struct ProgramTests {
    @Test("a program prints the version of the package", arguments: ["shared-device", "shared-device-broker"])
    func version(_ program: String) async throws {
        let child = try ChildProcess(ChildProcess.built(program), ["--version"])
        #expect(await child.exitStatus() == 0)
        #expect(try await child.line { _ in true } == ProjectVersion.line(of: program))
    }
}
