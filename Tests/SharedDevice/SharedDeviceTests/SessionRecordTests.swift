import Foundation
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
import Testing

@_spi(Extensions) @testable import SharedDevice

@Suite("The record of whose data an app may hold")
struct SessionRecordTests {
    private let first = Account(identifier: "1.t", username: "one")
    private let second = Account(identifier: "2.t", username: "two")
    private let directory: TemporaryDirectory
    private let store: SessionStore

    init() throws {
        directory = try TemporaryDirectory("record")
        store = SessionStore(path: "\(directory.path)/record.json")
    }

    private func session(_ account: Account?, _ epoch: UInt64) -> DeviceSession {
        DeviceSession(account: account, epoch: epoch)
    }

    @Test("another process's change is seen, whatever inode and times the file has")
    func rewritten() async throws {
        let records = [first, second].map { account in
            var record = SessionRecord()
            _ = record.enter(session(account, 1))
            return record
        }
        // A file system reuses inodes, and its clock is coarse: write 50 files of the same size in a row.
        var record = SharedRecord(store: store)
        for number in 0..<50 {
            let other = records[number % 2]
            try store.save(other)
            try #require(utimensat(AT_FDCWD, store.path, [timespec(), timespec()], 0) == 0)
            let seen = try await record.update { $0.mayHoldData }
            #expect(seen == other.mayHoldData, "\(number)")
        }
        try store.save(records[1])
        #expect(try await record.update { $0.mayHoldData } == records[1].mayHoldData)
        let file = try #require(FileHandle(forWritingAtPath: store.path))
        var inPlace = records[1]
        _ = inPlace.enter(session(first, 3))
        try file.truncate(atOffset: 0)
        try file.write(contentsOf: JSONEncoder().encode(inPlace))
        try file.close()
        #expect(try await record.update { $0.mayHoldData.map(\.account) } == [second, first])
        try FileManager.default.removeItem(atPath: store.path)
        #expect(try await record.update { $0.mayHoldData }.isEmpty)
    }

    // S20. The pool has one thread per processor: if the waiting tasks occupied them, this test would never end.
    @Test("waiting for another process's record lock does not block Swift's threads", .timeLimit(.minutes(5)))
    func lockedRecord() async throws {
        let holder = try ChildProcess("flock", [store.path + ".lock", "sh", "-c", "echo held; read line"])
        try await holder.line { $0 == "held" }
        let count = 4 + 2 * ProcessInfo.processInfo.activeProcessorCount
        try await withThrowingTaskGroup(of: Void.self) { group in
            for number in 1...count {
                group.addTask { [first, store] in
                    var record = SharedRecord(store: store)
                    try await record.update { _ = $0.enter(DeviceSession(account: first, epoch: UInt64(number))) }
                }
            }
            // Each of these needs a free thread of the pool.
            for _ in 0..<count { await Task { await Task.yield() }.value }
            #expect(!FileManager.default.fileExists(atPath: store.path), "it is locked")
            try holder.write("go")
            try await group.waitForAll()
        }
        #expect(try store.load().mayHoldData.count == count)
    }

    @Test("a process does not reread its own writes until another process writes")
    func ownWriting() async throws {
        var (record, other) = (SharedRecord(store: store), SharedRecord(store: store))
        for number in stride(from: UInt64(1), to: 40, by: 2) {
            try await record.update { [first] in _ = $0.enter(DeviceSession(account: first, epoch: number)) }
            let onDisk = try store.load()
            #expect(try await record.update { $0 } == onDisk)
            #expect(onDisk.mayHoldData.last?.epoch == number)
            try await other.update { [second] in _ = $0.enter(DeviceSession(account: second, epoch: number + 1)) }
            #expect(try await record.update { $0.mayHoldData.last?.epoch } == number + 1)
        }
    }

    @Test("a failed replacement leaves the record unchanged")
    func unwritable() async throws {
        var record = SharedRecord(store: store)
        try await record.update { [first] in _ = $0.enter(DeviceSession(account: first, epoch: 1)) }
        // A directory at the path of the temporary file.
        try FileManager.default.createDirectory(atPath: store.path + ".new", withIntermediateDirectories: false)
        let error = await #expect(throws: SharedDeviceError.self) {
            try await record.update { [second] in _ = $0.enter(DeviceSession(account: second, epoch: 3)) }
        }
        #expect(error?.code == .recordUnusable)
        #expect(try await record.update { $0.mayHoldData.map(\.epoch) } == [1])
        #expect(try store.load().mayHoldData.map(\.epoch) == [1])
    }

    @Test("the previous account differs from the current one while other data is left")
    func previous() {
        let change = AccountChange(previous: [(first, 1), (second, 3)], current: second, epoch: 5)
        #expect(change.previous == first)
        #expect(AccountChange(previous: [(second, 3)], current: second, epoch: 5).previous == second)
        #expect(AccountChange(previous: [(first, 1), (second, 3)], current: nil, epoch: 5).previous == second)
    }

    @Test("a receipt that the broker has taken does not cause a write")
    func takenReceipt() async throws {
        var record = SharedRecord(store: store)
        try await record.update { [first] in _ = $0.enter(DeviceSession(account: first, epoch: 1)) }
        try await record.update { record in
            let stale = record.enter(DeviceSession(account: nil, epoch: 2))
            record.cleaned(stale)
        }
        let written = try store.read().bytes
        let due = try await record.update { record in
            record.reconcile(owed: [])
            return record.receiptsDue
        }
        #expect(due.isEmpty)
        #expect(try store.read().bytes == written)
    }

    @Test("the file stores the record; an unreadable file is an error")
    func file() throws {
        let store = SessionStore(path: "\(directory.path)/deep/er/record.json")
        #expect(try store.load() == SessionRecord())
        var record = SessionRecord()
        _ = record.enter(session(first, 1))
        _ = record.report(session(first, 1))
        try store.save(record)
        #expect(try store.load() == record && store.load().mayHoldData.first?.epoch == 1)
        try "{ not json".write(toFile: store.path, atomically: true, encoding: .utf8)
        let error = #expect(throws: SharedDeviceError.self) { try store.load() }
        #expect(error?.code == .recordUnusable && error?.description.contains(store.path) == true)
    }
}
