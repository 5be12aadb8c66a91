import DBusTransport
import Foundation
import SharedDevice
import Synchronization
import Testing

@testable import SharedDeviceBroker

@Suite("Every change of the device goes one way: commit, then epoch, then announcement")
struct DeviceBrokerTests {
    /// A provider whose answers wait until the test lets them go.
    private final class GatedProvider: IdentityProvider {
        private struct State {
            var waiting: [CheckedContinuation<Void, Never>] = []
            var isOpen = true
            var ended: [String] = []
        }

        private let state = Locked(State())

        var ended: [String] { state.withLock { $0.ended } }
        var waitingCount: Int { state.withLock { $0.waiting.count } }

        func close() { state.withLock { $0.isOpen = false } }

        func open() {
            let waiting = state.withLock { state in
                state.isOpen = true
                defer { state.waiting = [] }
                return state.waiting
            }
            for continuation in waiting { continuation.resume() }
        }

        private func pass() async {
            await withCheckedContinuation { continuation in
                let isOpen = state.withLock { state in
                    if !state.isOpen { state.waiting.append(continuation) }
                    return state.isOpen
                }
                if isOpen { continuation.resume() }
            }
        }

        func authenticate(_ request: SignInRequest) async throws(IdentityError) -> AuthenticatedIdentity {
            await pass()
            let account = Account(identifier: "\(request.username).t", username: request.username)
            return AuthenticatedIdentity(account: account)
        }

        func issueToken(
            for identity: AuthenticatedIdentity,
            scopes: Set<String>
        ) async throws(IdentityError) -> AccessToken {
            await pass()
            return AccessToken(value: UUID().uuidString, scopes: scopes, expiresAt: Date(timeIntervalSinceNow: 3600))
        }

        func endSession(for identity: AuthenticatedIdentity) async throws(IdentityError) {
            state.withLock { $0.ended.append(identity.account.username) }
        }
    }

    private let temporary: TemporaryDirectory
    private let database: DeviceDatabase
    private let store: AccountStore
    private let provider = GatedProvider()

    init() throws {
        temporary = try TemporaryDirectory()
        database = try DeviceDatabase(directory: temporary.state, firstEpoch: 0)
        store = AccountStore(database: database)
    }

    private func sharedBroker(
        announce: @escaping @Sendable (DeviceState) -> Void = { _ in }
    ) async throws -> DeviceBroker {
        let broker = try DeviceBroker(
            database: database,
            provider: provider,
            surroundings: DeviceBroker.Surroundings(announce: announce)
        )
        try await broker.apply(.modeChanged(.shared))
        return broker
    }

    private func signIn(_ broker: DeviceBroker, _ name: String) async throws -> DeviceBroker.Grant {
        try await broker.signIn(SignInRequest(username: name, password: Secret("p")), scopes: ["a"], by: "app")
    }

    @Test("whoever is told finds the new state on the disk, through another connection")
    func commitBeforeAnnouncement() async throws {
        let other = AccountStore(database: try DeviceDatabase(directory: temporary.state, firstEpoch: 0))
        let seen = Locked<[(announced: UInt64, stored: UInt64?, account: String?)]>([])
        let broker = try await sharedBroker { state in
            let stored = try? other.state()
            seen.withLock { $0.append((state.epoch, stored?.epoch, stored?.account?.username)) }
        }
        _ = try await signIn(broker, "ada")
        try await broker.apply(.signOut(accountIdentifier: nil))
        try await broker.apply(.modeChanged(.personal))
        let entries = seen.withLock { $0 }
        #expect(entries.map(\.announced) == [1, 2, 3, 4])
        #expect(entries.map(\.stored) == [1, 2, 3, 4])
        #expect(entries.map(\.account) == [nil, "ada", nil, nil])
    }

    @Test("an answer stands for the next question, and is gone before a change is announced")
    func standingAnswers() async throws {
        let asked = Locked<DeviceBroker?>(nil)
        let standing = Locked<[Bool]>([])
        let broker = try await sharedBroker { _ in
            guard let answers = asked.withLock({ $0?.standingAnswers }) else { return }
            standing.withLock { $0.append(answers["app"] != nil) }
        }
        _ = try await signIn(broker, "ada")
        #expect(broker.standingAnswers["app"] == nil)
        let answer = try await broker.session(for: "app")
        #expect(answer.session.account?.username == "ada")
        #expect(broker.standingAnswers["app"] == .fields(answer.fields))
        #expect(broker.standingAnswers["other"] == nil)
        asked.withLock { $0 = broker }
        try await broker.apply(.signOut(accountIdentifier: nil))
        #expect(standing.withLock { $0 } == [false])
        // Who owes a cleanup is answered by the broker itself each time.
        _ = try await broker.session(for: "app")
        #expect(broker.standingAnswers["app"] == nil)
    }

    @Test("every way to lose the account announces: sign-out, removal by administration, end of shared mode")
    func everyPath() async throws {
        let announced = Locked(0)
        let broker = try await sharedBroker { _ in announced.withLock { $0 += 1 } }
        let events: [DeviceEvent] = [
            .signOut(accountIdentifier: "ada.t"), .accountRemoved(identifier: "ada.t"), .modeChanged(.personal),
        ]
        for event in events {
            try await broker.apply(.modeChanged(.shared))
            _ = try await signIn(broker, "ada")
            let before = announced.withLock { $0 }
            try await broker.apply(event)
            #expect(announced.withLock { $0 } == before + 1)
            #expect(await broker.current.account == nil)
        }
    }

    @Test("a refused event changes nothing and announces nothing")
    func refusal() async throws {
        let announced = Locked(0)
        let broker = try await sharedBroker { _ in announced.withLock { $0 += 1 } }
        let before = announced.withLock { $0 }
        await #expect(throws: DeviceRefusal.noCurrentAccount) {
            try await broker.apply(.signOut(accountIdentifier: "ada.t"))
        }
        #expect(announced.withLock { $0 } == before)
        #expect(try store.state().epoch == 1)
    }

    // E18
    @Test("of two sign-ins at once one wins, and the other is told")
    func racingSignIns() async throws {
        let broker = try await sharedBroker()
        provider.close()
        let attempts = ["ada", "grace"].map { name in
            Task { () -> String? in
                do { return try await signIn(broker, name).account.username } catch { return nil }
            }
        }
        while provider.waitingCount < 2 { await Task.yield() }
        provider.open()
        var winners: [String] = []
        for attempt in attempts { if let winner = await attempt.value { winners.append(winner) } }
        #expect(winners.count == 1)
        #expect(await broker.current.account?.username == winners.first)
        #expect(await broker.current.epoch == 2)
    }

    // E14
    @Test("a token that is under way when its session ends is not handed out, even if the same person is back")
    func tokenAcrossSignOut() async throws {
        let broker = try await sharedBroker()
        _ = try await signIn(broker, "ada")
        provider.close()
        let request = Task { () -> DeviceRefusal? in
            do {
                _ = try await broker.acquireToken(for: "ada.t", scopes: ["b"], refresh: false, by: "app")
                return nil
            } catch {
                return error as? DeviceRefusal
            }
        }
        while provider.waitingCount < 1 { await Task.yield() }
        try await broker.apply(.signOut(accountIdentifier: "ada.t"))
        try await broker.apply(.signIn(Account(identifier: "ada.t", username: "ada")))
        provider.open()
        #expect(await request.value == .currentAccountMismatch)
    }

    @Test("a sign-out ends the provider's session and the tokens; a restart keeps the account")
    func endAndRestart() async throws {
        let broker = try await sharedBroker()
        let grant = try await signIn(broker, "ada")
        let again = try await broker.acquireToken(for: "ADA.T", scopes: ["a"], refresh: false, by: "app")
        #expect(again.token == grant.token)
        let restarted = try DeviceBroker(database: database, provider: provider)
        #expect(await restarted.current.account?.username == "ada")
        #expect(
            try await restarted.acquireToken(for: "ada.t", scopes: ["a"], refresh: false, by: "app").token
                != grant.token
        )
        try await broker.apply(.signOut(accountIdentifier: "ada.t"))
        while provider.ended.isEmpty { await Task.yield() }
        #expect(provider.ended == ["ada"])
        await #expect(throws: DeviceRefusal.noCurrentAccount) {
            try await broker.acquireToken(for: "ada.t", scopes: ["a"], refresh: false, by: "app")
        }
    }
}
