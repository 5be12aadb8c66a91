import DBusTransport
import Foundation
import GRDB
import SharedDevice
import Synchronization
import Testing

@testable import SharedDeviceBroker

/// A provider that knows everybody, and whose tokens wait while a test holds them back.
private final class OpenProvider: IdentityProvider {
    private struct State {
        var isHolding = false
        var waiting: [CheckedContinuation<Void, Never>] = []
    }

    private let state = Locked(State())

    var waitingCount: Int { state.withLock { $0.waiting.count } }

    func holdTokens() { state.withLock { $0.isHolding = true } }

    func letGo() {
        let waiting = state.withLock { state in
            state.isHolding = false
            defer { state.waiting = [] }
            return state.waiting
        }
        for continuation in waiting { continuation.resume() }
    }

    func authenticate(_ request: SignInRequest) async throws(IdentityError) -> AuthenticatedIdentity {
        AuthenticatedIdentity(account: Account(identifier: "\(request.username).t", username: request.username))
    }

    func issueToken(
        for identity: AuthenticatedIdentity,
        scopes: Set<String>
    ) async throws(IdentityError) -> AccessToken {
        await withCheckedContinuation { continuation in
            let goesOn = state.withLock { state in
                if state.isHolding { state.waiting.append(continuation) }
                return !state.isHolding
            }
            if goesOn { continuation.resume() }
        }
        return AccessToken(value: UUID().uuidString, scopes: scopes, expiresAt: Date(timeIntervalSinceNow: 3600))
    }

    func endSession(for identity: AuthenticatedIdentity) async throws(IdentityError) {}
}

@Suite("The broker's ledger: on the disk before the answer, and what the policy makes of it")
struct CleanupPolicyTests {
    private let directory: TemporaryDirectory
    private let database: DeviceDatabase
    private let provider = OpenProvider()
    private let clock = Shared(Date(timeIntervalSince1970: 1_000_000))

    init() throws {
        directory = try TemporaryDirectory()
        database = try DeviceDatabase(directory: directory.state, firstEpoch: 0)
    }

    private final class Woken: Sendable {
        let apps = Shared<[String]>([])
        var all: [String] { apps.withLock { $0 } }
    }

    private func broker(_ policy: CleanupPolicy = .advisory, woken: Woken = Woken()) async throws -> DeviceBroker {
        let now: @Sendable () -> Date = { [clock] in clock.withLock { $0 } }
        let broker = try DeviceBroker(
            database: database,
            provider: provider,
            surroundings: .init(wake: { app in woken.apps.withLock { $0.append(app) } }, now: now)
        )
        await broker.use(policy)
        try await broker.apply(.modeChanged(.shared))
        return broker
    }

    private func signIn(
        _ name: String,
        _ broker: DeviceBroker,
        by app: String = "desk",
        patience: Duration = .zero
    ) async throws -> UInt64 {
        let request = SignInRequest(username: name, password: Secret("p"))
        return try await broker.signIn(request, scopes: ["s"], by: app, patience: patience).epoch
    }

    /// Ada was signed in by the desk, and app “a” was told of her; now she is signed out. Returns her session.
    private func adaWasHere(_ broker: DeviceBroker) async throws -> UInt64 {
        let session = try await signIn("ada", broker)
        _ = try await broker.session(for: "a")
        _ = try await broker.signOut(nil, cause: "test")
        return session
    }

    private func refusal(_ body: () async throws -> Void) async -> DeviceRefusal? {
        do {
            try await body()
            return nil
        } catch {
            return error as? DeviceRefusal
        }
    }

    private func finish(_ broker: DeviceBroker, _ apps: String...) async throws {
        for app in apps {
            for owed in try await broker.session(for: app).owed {
                try await broker.report(.finished, of: owed.epoch, by: app, detail: nil)
            }
        }
    }

    /// What another process reads.
    private func storedLedger() throws -> CleanupLedger {
        try LedgerStore(database: DeviceDatabase(directory: directory.state, firstEpoch: 0)).ledger()
    }

    // MARK: The disk

    @Test("that an app holds the account is on the disk before it has the answer")
    func heldBeforeAnswer() async throws {
        let broker = try await broker()
        let session = try await signIn("ada", broker)
        #expect(try storedLedger().participations[session]?["desk"] != nil, "who signs in holds it too")
        for app in ["a", "b", "c"] {
            let answer = try await broker.session(for: app)
            #expect(answer.session.account?.username == "ada")
            #expect(try storedLedger().participations[session]?[app] != nil)
        }
        _ = try await broker.acquireToken(for: "ada.t", scopes: ["s"], refresh: false, by: "d")
        #expect(try storedLedger().participations[session]?["d"] != nil)
    }

    @Test("a disk that does not take the hold keeps the account from the app, which gets it when the disk does again")
    func diskFull() async throws {
        let broker = try await broker()
        let session = try await signIn("ada", broker)
        let queue = try DatabaseQueue(path: directory.databaseFile)
        try await queue.write { db in
            try db.execute(
                sql: "CREATE TRIGGER full BEFORE INSERT ON participation BEGIN SELECT RAISE(ABORT, 'no'); END"
            )
        }
        await #expect(throws: StoreError.self) { try await broker.session(for: "a") }
        await #expect(throws: StoreError.self) { try await broker.session(for: "a") }
        try await queue.write { db in try db.execute(sql: "DROP TRIGGER full") }
        #expect(try await broker.session(for: "a").session.account?.username == "ada")
        #expect(try storedLedger().participations[session]?["a"] != nil)
    }

    @Test("many apps that ask at once share a few transactions")
    func groupCommit() async throws {
        let broker = try await broker()
        let session = try await signIn("ada", broker)
        let pages = try walFrames()
        try await withThrowingTaskGroup(of: Void.self) { group in
            for number in 0..<200 { group.addTask { _ = try await broker.session(for: "app \(number)") } }
            try await group.waitForAll()
        }
        #expect(try storedLedger().participations[session]?.count == 201)
        // A transaction of its own for each would write at least three pages for each.
        let written = try walFrames() - pages
        #expect(written < 200)
    }

    /// The pages that were written to the write-ahead log.
    private func walFrames() throws -> Int {
        let size = try FileManager.default.attributesOfItem(atPath: directory.databaseFile + "-wal")[.size] as? Int
        return max(0, (size ?? 0) - 32) / (4096 + 24)
    }

    @Test("whoever is signed in by the state has a session, though the ledger has none")
    func stateWithoutSession() async throws {
        let accounts = AccountStore(database: database)
        try accounts.commit(DeviceState(mode: .shared, account: nil, epoch: 1))
        try accounts.commit(DeviceState(mode: .shared, account: .ada, epoch: 2))
        let broker = try await broker()
        _ = try await broker.session(for: "a")
        _ = try await broker.signOut(nil, cause: "test")
        #expect(try await broker.session(for: "a").owed.map(\.epoch) == [2])
    }

    // MARK: Advisory

    @Test("an advisory policy lets the next user in; what is owed stays on record and is told each time")
    func advisory() async throws {
        let broker = try await broker(.advisory)
        let session = try await adaWasHere(broker)
        _ = try await signIn("grace", broker)
        let answer = try await broker.session(for: "a")
        #expect(answer.session.account?.username == "grace")
        #expect(answer.owed == [OwedSession(epoch: session, account: Account(identifier: "ada.t", username: "ada"))])
        #expect(!answer.isWithheld)
        #expect(try await broker.session(for: "a").owed.count == 1)
    }

    // MARK: Strict

    @Test("under a strict policy nobody signs in while anybody owes a cleanup, and the refusal names who does")
    func strictRefusal() async throws {
        let broker = try await broker(.strict)
        _ = try await adaWasHere(broker)
        #expect(await broker.signInHeldFor == ["a", "desk"])
        let first = await refusal { _ = try await signIn("grace", broker) }
        #expect(first?.code == .cleanupPending)
        #expect(first?.description.contains("a, desk") == true)
        try await finish(broker, "desk")
        let second = await refusal { _ = try await signIn("grace", broker) }
        #expect(second == .cleanupPending(["a"]))
        #expect(await broker.current.account == nil)
        try await finish(broker, "a")
        _ = try await signIn("grace", broker)
        #expect(await broker.signInHeldFor.isEmpty)
    }

    @Test("a sign-in that is patient goes on with the last receipt")
    func strictPatience() async throws {
        let broker = try await broker(.strict)
        let session = try await adaWasHere(broker)
        let waiting = Task { try await signIn("grace", broker, patience: .seconds(60)) }
        try await finish(broker, "desk")
        #expect(await broker.current.account == nil)
        try await finish(broker, "a")
        #expect(try await waiting.value > session)
        #expect(await broker.current.account?.username == "grace")
    }

    @Test("a round that opens while the password is looked at is in the way, too")
    func roundDuringSignIn() async throws {
        let broker = try await broker(.strict)
        provider.holdTokens()
        let late = Task { () -> DeviceRefusal? in await refusal { _ = try await signIn("grace", broker) } }
        while provider.waitingCount < 1 { await Task.yield() }
        try await broker.apply(.signIn(.ada))
        _ = try await broker.session(for: "a")
        _ = try await broker.signOut(nil, cause: "test")
        provider.letGo()
        #expect(await late.value == .cleanupPending(["a"]))
    }

    @Test("when the time is over the next user gets in, but not to the app that still owes")
    func quarantine() async throws {
        let broker = try await broker(CleanupPolicy(isStrict: true, timeout: .seconds(30)))
        let session = try await adaWasHere(broker)
        try await finish(broker, "desk")
        #expect(await refusal { _ = try await signIn("grace", broker) } == .cleanupPending(["a"]))
        clock.withLock { $0 += 31 }
        await broker.use(CleanupPolicy(isStrict: true, timeout: .seconds(30)))
        #expect(await broker.round(of: session)?.report.outcome == .expired)
        _ = try await signIn("grace", broker)
        let answer = try await broker.session(for: "a")
        #expect(answer.isWithheld && answer.session.account == nil)
        #expect(answer.owed.map(\.epoch) == [session])
        let token = await refusal {
            _ = try await broker.acquireToken(for: "grace.t", scopes: ["s"], refresh: false, by: "a")
        }
        #expect(token == .cleanupRequired)
        #expect(try await broker.session(for: "b").session.account?.username == "grace")
        try await finish(broker, "a")
        #expect(try await broker.session(for: "a").session.account?.username == "grace")
        #expect(await broker.round(of: session)?.report.outcome == .complete)
        let log = AuditLog(database: database)
        #expect(try log.lines(.init(event: .expired)).map(\.entry.detail) == ["still owing: a"])
        #expect(try log.lines(.init(session: session, event: .completed)).count == 1)
    }

    @Test("an app that owes a cleanup signs nobody in, when its round has expired")
    func quarantinedSignIn() async throws {
        let broker = try await broker(CleanupPolicy(isStrict: true, timeout: .seconds(1)))
        _ = try await adaWasHere(broker)
        clock.withLock { $0 += 2 }
        await broker.use(CleanupPolicy(isStrict: true, timeout: .seconds(1)))
        #expect(await refusal { _ = try await signIn("grace", broker, by: "a") } == .cleanupRequired)
    }

    @Test("a policy that waits without end waits for what expired under another one, too")
    func stricterPolicy() async throws {
        let broker = try await broker(CleanupPolicy(isStrict: true, timeout: .seconds(1)))
        let session = try await adaWasHere(broker)
        clock.withLock { $0 += 2 }
        await broker.use(CleanupPolicy(isStrict: true, timeout: .seconds(1)))
        #expect(await broker.signInHeldFor.isEmpty)
        await broker.use(.strict)
        #expect(await broker.signInHeldFor == ["a", "desk"])
        #expect(await refusal { _ = try await signIn("grace", broker) } == .cleanupPending(["a", "desk"]))
        for app in ["a", "desk"] { try await broker.report(.finished, of: session, by: app, detail: nil) }
        _ = try await signIn("grace", broker)
    }

    @Test("a round expires by itself, though nobody asks")
    func expiryByTimer() async throws {
        let broker = try await broker(CleanupPolicy(isStrict: true, timeout: .milliseconds(50)))
        let session = try await adaWasHere(broker)
        clock.withLock { $0 += 1 }
        var revision: UInt64?
        while let round = await broker.round(of: session, after: revision, until: .now + .seconds(300)) {
            if round.report.outcome == .expired { break }
            revision = round.revision
        }
        #expect(await broker.signInHeldFor.isEmpty)
    }

    // MARK: Administrators, and processes that end

    @Test("an administrator's word settles what an app owes, in one session or all, with the reason in the log")
    func waive() async throws {
        let broker = try await broker()
        let sessions = [try await adaWasHere(broker), try await adaWasHere(broker)]
        #expect(try await broker.waive("a", session: sessions[0], reason: "was removed") == [sessions[0]])
        #expect(try await broker.session(for: "a").owed.map(\.epoch) == [sessions[1]])
        #expect(try await broker.waive("a", session: nil, reason: "was removed") == [sessions[1]])
        #expect(try await broker.waive("a", session: nil, reason: "again") == [])
        #expect(try await broker.session(for: "a").owed.isEmpty)
        let lines = try AuditLog(database: database).lines(.init(app: "a", event: .waived))
        #expect(lines.map(\.entry.session) == sessions)
        #expect(lines.map(\.entry.detail) == ["was removed", "was removed"])
    }

    @Test("those who owe are woken: at the sign-out, after a start, and when their process ends")
    func wake() async throws {
        let woken = Woken()
        let broker = try await broker(woken: woken)
        let session = try await adaWasHere(broker)
        #expect(Set(woken.all) == ["a", "desk"])
        try await finish(broker, "desk")
        let restartWoken = Woken()
        let restarted = try await self.broker(woken: restartWoken)
        await restarted.announceAgain()
        #expect(Set(restartWoken.all) == ["a"])
        await restarted.appStarted("a")
        #expect(try await restarted.session(for: "a").owed.map(\.epoch) == [session])
        try await restarted.report(.begun, of: session, by: "a", detail: nil)
        restartWoken.apps.withLock { $0 = [] }
        await restarted.appEnded("a")
        #expect(restartWoken.all == ["a"])
        #expect(await restarted.round(of: session)?.report.owing.map(\.progress) == [.owed])
        try await finish(restarted, "a")
        let log = AuditLog(database: database)
        #expect(try log.lines(.init(app: "a", event: .interrupted)).map(\.entry.session) == [session])
        restartWoken.apps.withLock { $0 = [] }
        await restarted.appStarted("a")
        await restarted.appEnded("a")
        #expect(restartWoken.all.isEmpty, "who owes nothing is left alone")
    }

    @Test("a receipt that comes again, or for nothing, is taken and changes nothing")
    func receiptTwice() async throws {
        let broker = try await broker()
        let session = try await adaWasHere(broker)
        for _ in 0..<3 { try await broker.report(.finished, of: session, by: "a", detail: nil) }
        try await broker.report(.finished, of: 999, by: "a", detail: nil)
        try await broker.report(.finished, of: session, by: "stranger", detail: nil)
        #expect(try AuditLog(database: database).lines(.init(event: .finished)).count == 1)
        #expect(await broker.round(of: session)?.report.apps.map(\.identifier) == ["a", "desk"])
    }

    // MARK: Races

    // E14
    @Test("an app that asks for a token while the account is signed out gets none, and nobody new holds the session")
    func tokenDuringSignOut() async throws {
        let broker = try await broker()
        let session = try await signIn("ada", broker)
        provider.holdTokens()
        let request = Task { () -> DeviceRefusal? in
            await refusal { _ = try await broker.acquireToken(for: "ada.t", scopes: ["x"], refresh: true, by: "late") }
        }
        while provider.waitingCount < 1 { await Task.yield() }
        _ = try await broker.signOut(nil, cause: "test")
        provider.letGo()
        #expect(await request.value == .noCurrentAccount)
        #expect(await broker.round(of: session)?.report.apps.map(\.identifier) == ["desk"])
        #expect(try await broker.session(for: "late").owed.isEmpty)
    }

    @Test("apps that ask while somebody signs out hear of the account only if they are in its round")
    func askDuringSignOut() async throws {
        let broker = try await broker()
        for round in 0..<20 {
            let session = try await signIn("ada", broker, by: "desk")
            let answers = try await withThrowingTaskGroup(of: (String, Bool).self) { group in
                for number in 0..<8 {
                    group.addTask {
                        let app = "\(round)-\(number)"
                        return (app, try await broker.session(for: app).session.account != nil)
                    }
                }
                group.addTask {
                    _ = try await broker.signOut(nil, cause: "test")
                    return ("desk", true)
                }
                return try await group.reduce(into: [:]) { $0[$1.0] = $1.1 }
            }
            let listed = Set(await broker.round(of: session)?.report.apps.map(\.identifier) ?? [])
            for (app, heard) in answers where heard { #expect(listed.contains(app), "\(app) heard, and owes nothing") }
        }
    }

    @Test("who waits for a round hears of each change, and at the end that it is complete")
    func waitForRound() async throws {
        let broker = try await broker()
        let session = try await adaWasHere(broker)
        let first = try #require(await broker.round(of: nil))
        #expect(first.report.session == session)
        let waiting = Task { await broker.round(of: session, after: first.revision, until: .now + .seconds(60)) }
        try await broker.report(.begun, of: session, by: "a", detail: nil)
        let second = try #require(await waiting.value)
        #expect(second.revision > first.revision)
        try await finish(broker, "a", "desk")
        #expect(
            await broker.round(of: session, after: second.revision, until: .now + .seconds(60))?.report.isComplete
                == true
        )
        #expect(await broker.round(of: 999) == nil)
    }

    @Test("refusals beyond the limit are one entry, when the minute is over")
    func refusalLog() async throws {
        let broker = try await broker()
        let refusals = RefusalLog(broker: broker, limiter: RefusalLimiter(limit: 2))
        for _ in 0..<500 {
            await refusals.note("no_current_account", of: "SignOut", by: String(repeating: "a", count: 9999))
        }
        _ = try await signIn("ada", broker)
        let lines = try AuditLog(database: database).lines(.init(event: .refused))
        #expect(lines.map(\.entry.detail) == ["no_current_account SignOut", "no_current_account SignOut"])
        #expect(lines.allSatisfy { $0.entry.app?.count == 200 })
    }
}
