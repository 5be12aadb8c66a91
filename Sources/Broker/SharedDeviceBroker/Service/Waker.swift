import DBusTransport
import Synchronization

/// Asks the bus to start apps that owe a cleanup. For an app that is on the bus already the bus does nothing.
///
/// It asks again while the app owes something, at intervals that grow to a minute: an app that crashes at each start does not keep the device
/// busy, and one that is repaired is started.
final class Waker: Sendable {
    private let connection: DBusConnection
    private let busName: @Sendable (_ app: String) -> String?
    private let isOwing: @Sendable (_ app: String) async -> Bool
    private let woken: @Sendable (_ app: String, _ detail: String) async -> Void
    /// The apps that are being started, each with its task.
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

    /// Starts the app if it has a bus name. An app without one has to start by itself.
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
                // It may owe something again by now.
                if !Task.isCancelled, await self?.isOwing(app) == true { self?.wake(app) }
            }
        }
    }

    /// Makes one attempt. Returns whether another one is needed later.
    ///
    /// - Parameter problem: why the last attempt failed. The same reason is logged once.
    private func attempt(_ app: String, _ problem: inout String?) async -> Bool {
        guard await isOwing(app) else { return false }
        // Looked up each time, because the manifests may have changed.
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
            // 1 means that the bus started it, 2 that it was running.
            if answer.first?.unsignedValue == 1 { await woken(app, "started as \(name)") }
        } catch {
            // During an outage nothing is logged; the next attempt follows.
            guard error.code != .disconnected, error.code != .closed else { return true }
            let detail = "could not be started as \(name): \(error.message)"
            if detail != problem { await woken(app, detail) }
            problem = detail
        }
        return true
    }
}
