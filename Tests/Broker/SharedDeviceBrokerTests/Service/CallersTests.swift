import DBusTransport
import Foundation
import NotifyCenterTestKit
import Synchronization
import Testing

@testable import SharedDeviceBroker

@Suite("Which apps run, by what the bus says of their connections")
struct CallersTests {
    private let bus: PrivateBus
    private let connection: DBusConnection
    private let told = Shared<[String]>([])

    init() throws {
        bus = try PrivateBus()
        connection = try DBusConnection.open(bus.bus)
    }

    private func callers() -> Callers {
        Callers(
            connection: connection,
            identify: { claimed, _ throws(DeviceRefusal) in
                guard let claimed else { throw .notPermitted }
                return AppIdentity(identifier: claimed)
            },
            appStarted: { app, _ in told.withLock { $0.append("+\(app.identifier)") } },
            appEnded: { app in
                // An end that is slow to be told must not come after the next start.
                try? await Task.sleep(for: .milliseconds(20))
                told.withLock { $0.append("-\(app)") }
            }
        )
    }

    /// A connection of an app's process, and its name on the bus.
    private func peer() async throws -> (connection: DBusConnection, name: String) {
        let peer = try DBusConnection.open(bus.bus)
        let call = try DBusMessage.methodCall(
            destination: "org.freedesktop.DBus",
            path: "/org/freedesktop/DBus",
            interface: "org.freedesktop.DBus",
            member: "GetNameOwner",
            arguments: [.string("org.freedesktop.DBus")]
        )
        _ = try await peer.call(call)
        return (peer, try #require(peer.uniqueName))
    }

    @Test("an app starts with its first connection and ends with its last")
    func startAndEnd() async throws {
        let callers = callers()
        var first: (connection: DBusConnection, name: String)? = try await peer()
        var second: (connection: DBusConnection, name: String)? = try await peer()
        for name in [first?.name, second?.name, first?.name] {
            _ = try await callers.caller(try #require(name), claiming: "a")
        }
        #expect(told.withLock { $0 } == ["+a"])
        first?.connection.close()
        first = nil
        _ = try await callers.caller(try #require(second?.name), claiming: "b")
        #expect(told.withLock { $0 } == ["+a", "+b"])
        second?.connection.close()
        second = nil
        try await eventually("both are over") { told.withLock { $0.count } == 4 }
        #expect(told.withLock { $0.suffix(2).sorted() } == ["-a", "-b"])
    }

    @Test("the end of an app is told before its next start, however quickly that follows")
    func order() async throws {
        let callers = callers()
        for _ in 0..<20 {
            let (peer, name) = try await peer()
            _ = try await callers.caller(name, claiming: "a")
            peer.close()
        }
        try await eventually("all are over") { told.withLock { $0.last == "-a" && $0.count { $0 == "-a" } >= 1 } }
        let lines = told.withLock { $0 }
        for (number, line) in lines.enumerated() {
            #expect(line == (number.isMultiple(of: 2) ? "+a" : "-a"), "\(lines)")
        }
    }

    @Test("a process that is gone before the bus was asked about it does not run for ever")
    func goneAtOnce() async throws {
        let callers = callers()
        for _ in 0..<50 {
            let (peer, name) = try await peer()
            async let caller = callers.caller(name, claiming: "a")
            peer.close()
            _ = try? await caller
        }
        try await eventually("nobody runs") {
            let lines = told.withLock { $0 }
            return lines.count { $0 == "+a" } == lines.count { $0 == "-a" }
        }
    }

    @Test("other rules end the apps that are no more what they were, and leave the others alone")
    func otherRules() async throws {
        let renamed = Shared<Set<String>>([])
        let callers = Callers(
            connection: connection,
            identify: { claimed, _ throws(DeviceRefusal) in
                guard let claimed else { throw .notPermitted }
                return AppIdentity(
                    identifier: renamed.withLock { $0.contains(claimed) } ? "\(claimed) (known)" : claimed
                )
            },
            appStarted: { app, _ in told.withLock { $0.append("+\(app.identifier)") } },
            appEnded: { app in told.withLock { $0.append("-\(app)") } }
        )
        let peer = try await peer()
        for app in ["a", "b"] { _ = try await callers.caller(peer.name, claiming: app) }
        renamed.withLock { $0 = ["b"] }
        callers.identifyAnew()
        for app in ["a", "b"] { _ = try await callers.caller(peer.name, claiming: app) }
        #expect(told.withLock { $0 } == ["+a", "+b", "-b", "+b (known)"])
        _ = peer.connection
    }

    @Test("each of the first calls of an app waits until its start was told")
    func startsFirst() async throws {
        let (hasBegun, mayEnd) = (Shared(false), Shared(false))
        let callers = Callers(
            connection: connection,
            identify: { _, _ in AppIdentity(identifier: "a") },
            appStarted: { _, _ in
                hasBegun.withLock { $0 = true }
                while !mayEnd.withLock({ $0 }) { try? await Task.sleep(for: .milliseconds(1)) }
                told.withLock { $0.append("+a") }
            },
            appEnded: { _ in }
        )
        let peer = try await peer()
        let first = Task { _ = try await callers.caller(peer.name, claiming: "a") }
        try await eventually("it is being told") { hasBegun.withLock { $0 } }
        let second = Task {
            _ = try await callers.caller(peer.name, claiming: "a")
            told.withLock { $0.append("second") }
        }
        let other = Task {
            _ = try await callers.caller(peer.name, claiming: "another name of it")
            told.withLock { $0.append("other") }
        }
        // Time for what must not happen.
        try await Task.sleep(for: .milliseconds(100))
        mayEnd.withLock { $0 = true }
        try await first.value
        try await second.value
        try await other.value
        #expect(told.withLock { $0.first } == "+a")
        #expect(told.withLock { $0.count } == 3)
        _ = peer.connection
    }

    @Test("a connection that makes up names is refused at some point, and goes on by those that it has")
    func names() async throws {
        let callers = callers()
        let peer = try await peer()
        for number in 0..<Callers.namesOfAConnection {
            _ = try await callers.caller(peer.name, claiming: "app\(number)")
        }
        await #expect(throws: DeviceRefusal.tooManyNames) { try await callers.caller(peer.name, claiming: "one more") }
        _ = try await callers.caller(peer.name, claiming: "app0")
        _ = peer.connection
    }
}
