import Dispatch
import GRDB
import Glibc
import SharedDevice
import Testing

@testable import SharedDeviceBroker

@Suite("Account store")
struct AccountStoreTests {
    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory() }

    private func open() throws(StoreError) -> AccountStore {
        AccountStore(database: try DeviceDatabase(directory: directory.state, firstEpoch: 0))
    }

    private func code(_ body: () throws -> Void) -> StoreError.Code? {
        do {
            try body()
            return nil
        } catch {
            return (error as? StoreError)?.code
        }
    }

    @Test("a new store is personal, empty, of epoch 0")
    func fresh() throws {
        let state = try open().state()
        #expect(state.mode == .personal)
        #expect(state.account == nil)
        #expect(state.epoch == 0)
    }

    @Test("a database that is made anew does not count again from where the one before began")
    func epochsOfAnotherDatabase() throws {
        let before = UInt64(time(nil))
        let store = AccountStore(database: try DeviceDatabase(directory: directory.state))
        let first = try store.state().epoch
        #expect(first >= before)
        #expect(try store.isUntouched())
        try store.commit(DeviceState(mode: .shared, account: nil, epoch: first + 1))
        // Opened again, it goes on from where it is.
        let again = AccountStore(database: try DeviceDatabase(directory: directory.state))
        #expect(try again.state().epoch == first + 1)
        #expect(try !again.isUntouched())
    }

    @Test("what was committed is there after opening again, with every field")
    func persistence() throws {
        do {
            let store = try open()
            try store.commit(DeviceState(mode: .shared, account: nil, epoch: 1))
            try store.commit(DeviceState(mode: .shared, account: .ada, epoch: 2))
        }
        let state = try open().state()
        #expect(state.mode == .shared)
        #expect(state.account?.identifier == Account.ada.identifier)
        #expect(state.account?.username == Account.ada.username)
        #expect(state.account?.displayName == Account.ada.displayName)
        #expect(state.epoch == 2)
    }

    @Test("a commit that does not follow the stored epoch is refused, and changes nothing", arguments: [0, 1, 2, 4, 9])
    func staleEpoch(epoch: UInt64) throws {
        let store = try open()
        try store.commit(DeviceState(mode: .shared, account: nil, epoch: 1))
        try store.commit(DeviceState(mode: .shared, account: .ada, epoch: 2))
        #expect(code { try store.commit(DeviceState(mode: .shared, account: nil, epoch: epoch)) } == .staleEpoch)
        #expect(try store.state().account == .ada)
        #expect(try store.state().epoch == 2)
    }

    @Test("of two processes' commits from the same state one is refused")
    func lostUpdate() throws {
        let (first, second) = (try open(), try open())
        try first.commit(DeviceState(mode: .shared, account: nil, epoch: 1))
        let seen = try second.state()
        try first.commit(seen.next(mode: .shared, account: .ada))
        #expect(code { try second.commit(seen.next(mode: .shared, account: .grace)) } == .staleEpoch)
        #expect(try second.state().account == .ada)
    }

    @Test("a personal device cannot be stored with an account")
    func personalWithAccount() throws {
        let store = try open()
        #expect(code { try store.commit(DeviceState(mode: .personal, account: .ada, epoch: 1)) } == .failed)
        #expect(try store.state().epoch == 0)
    }

    @Test("after the sign-out no file holds the account's name or identity")
    func erasure() throws {
        let store = try open()
        try store.commit(DeviceState(mode: .shared, account: nil, epoch: 1))
        try store.commit(DeviceState(mode: .shared, account: .ada, epoch: 2))
        #expect(try directory.contains(Account.ada.username), "the test would see no erasure")
        // Another's stay in between moves the row about in its page.
        try store.commit(DeviceState(mode: .shared, account: nil, epoch: 3))
        try store.commit(DeviceState(mode: .shared, account: .grace, epoch: 4))
        try store.commit(DeviceState(mode: .shared, account: nil, epoch: 5))
        for account in [Account.ada, .grace] {
            #expect(try !directory.contains(account.username))
            #expect(try !directory.contains(account.identifier))
        }
        #expect(try !directory.contains("Lovelace"))
    }

    @Test("a reader elsewhere delays the erasure, which shows, and is made up for")
    func delayedErasure() async throws {
        let database = try DeviceDatabase(directory: directory.state, busyTimeout: .milliseconds(20), firstEpoch: 0)
        let store = AccountStore(database: database)
        try store.commit(DeviceState(mode: .shared, account: nil, epoch: 1))
        try store.commit(DeviceState(mode: .shared, account: .ada, epoch: 2))
        let reader = try DeviceDatabase(directory: directory.state, firstEpoch: 0)
        let (isReading, mayEnd) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
        async let reading: Void = onThread {
            try reader.read("hold a transaction") { db in
                _ = try AccountStore.fetch(db, path: "")
                isReading.signal()
                mayEnd.wait()
            }
        }
        try await onThread { isReading.wait() }
        try store.commit(DeviceState(mode: .shared, account: nil, epoch: 3))
        #expect(database.remnants?.code == .busy)
        #expect(try directory.contains(Account.ada.username))
        mayEnd.signal()
        try await reading
        database.eraseRemnants()
        #expect(database.remnants == nil)
        #expect(try !directory.contains(Account.ada.username))
    }

    @Test("each commit is synced, deleted bytes are overwritten, references are checked")
    func settings() throws {
        let database = try DeviceDatabase(directory: directory.state, firstEpoch: 0)
        let (synchronous, secureDelete, foreignKeys, journal) = try database.read("look at the settings") { db in
            (
                try Int.fetchOne(db, sql: "PRAGMA synchronous"), try Int.fetchOne(db, sql: "PRAGMA secure_delete"),
                try Int.fetchOne(db, sql: "PRAGMA foreign_keys"), try String.fetchOne(db, sql: "PRAGMA journal_mode")
            )
        }
        #expect(synchronous == 2)
        #expect(secureDelete == 1)
        #expect(foreignKeys == 1)
        #expect(journal == "wal")
    }
}
