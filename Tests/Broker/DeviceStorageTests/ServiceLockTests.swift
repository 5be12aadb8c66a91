import Basics
import DBus
import DeviceStorage
import Glibc
import NotifyCenterTestKit
import Synchronization
import Testing

@Suite("Lock of a broker's state directory")
struct ServiceLockTests {
    @Test("the lock keeps a second broker out, and a query of it keeps none out")
    func held() async throws {
        let directory = try TemporaryDirectory("service-lock")
        #expect(!ServiceLock.isHeld(in: directory.path))
        let lock = try ServiceLock(directory: directory.path)
        #expect(ServiceLock.isHeld(in: directory.path))
        #expect(throws: StoreError.self) { try ServiceLock(directory: directory.path) }
        withExtendedLifetime(lock) {}
        let asked = Locked<(path: String, isOver: Bool)>((directory.path, false))
        let asking = Task.detached {
            while true {
                let (path, isOver) = asked.withLock { $0 }
                if isOver { break }
                _ = ServiceLock.isHeld(in: path)
            }
        }
        defer { asked.withLock { $0.isOver = true } }
        for number in 0..<500 {
            // A new directory each time, because a process that another test has just started may inherit the lock.
            let path = "\(directory.path)/\(number)"
            try #require(mkdir(path, 0o700) == 0)
            try #require(mknod("\(path)/shared-device-broker.lock", S_IFREG | 0o600, 0) == 0)
            asked.withLock { $0.path = path }
            withExtendedLifetime(try ServiceLock(directory: path)) {}
        }
        asked.withLock { $0.isOver = true }
        await asking.value
    }
}
