import DBusTransport
import Synchronization

/// Has the bus start apps that owe a cleanup. An app whose process is on the bus already is left as it is: the bus sees to that.
///
/// It is tried again for as long as the app owes something, ever more rarely, at most once a minute: an app that crashes at each start does
/// not keep the device busy, and one that is repaired is found.
final class Waker: Sendable {
    private let connection: DBusConnection
    private let busName: @Sendable (_ app: String) -> String?
    private let isOwing: @Sendable (_ app: String) async -> Bool
    private let woken: @Sendable (_ app: String, _ detail: String) async -> Void
    /// The apps that are being seen to.
    private let underWay = Locked<[String: Task<Void, Never>]>([:])

    init(
        connection: DBusConnection,
        busName: @escaping @Sendable (_ app: String) -> String?,
        isOwing: @escaping @Sendable (_ app: String) async -> Bool,
        woken: @escaping @Sendable (_ app: String, _ detail: String) async -> Void
    ) {
        self.connection = connection
        self.busName = busName
        self.isOwing = isOwing
        self.woken = woken
    }

    deinit { for task in underWay.withLock({ $0 }).values { task.cancel() } }

    /// An app without a name that the bus could start it by is left to come by itself.
    func wake(_ app: String) {
        guard busName(app) != nil else { return }
        underWay.withLock { underWay in
            guard underWay[app] == nil else { return }
            underWay[app] = Task { [weak self] in
                var pause = Duration.milliseconds(500)
                var problem: String?
                while !Task.isCancelled, await self?.attempt(app, &problem) == true {
                    guard (try? await Task.sleep(for: pause)) != nil else { return }
                    pause = min(pause * 2, .seconds(60))
                }
                _ = self?.underWay.withLock { $0.removeValue(forKey: app) }
                // It may owe something again since it was asked.
                if !Task.isCancelled, await self?.isOwing(app) == true { self?.wake(app) }
            }
        }
    }

    /// Whether the app still owes something, and is to be started again.
    ///
    /// - Parameter problem: why the last attempt failed. The same reason again is no news.
    private func attempt(_ app: String, _ problem: inout String?) async -> Bool {
        guard await isOwing(app) else { return false }
        // Asked each time: the manifests may have changed.
        guard let name = busName(app) else { return true }
        do throws(DBusError) {
            let call = try DBusMessage.methodCall(
                destination: "org.freedesktop.DBus",
                path: "/org/freedesktop/DBus",
                interface: "org.freedesktop.DBus",
                member: "StartServiceByName",
                arguments: [.string(name), .uint32(0)]
            )
            let answer = try await connection.call(call)
            problem = nil
            // 2 is “it was running”, which is no news.
            if answer.first?.unsignedValue == 1 { await woken(app, "started as \(name)") }
        } catch {
            // A bus that is away starts it by the next attempt.
            guard error.code != .disconnected, error.code != .closed else { return true }
            let detail = "could not be started as \(name): \(error.message)"
            if detail != problem { await woken(app, detail) }
            problem = detail
        }
        return true
    }
}
