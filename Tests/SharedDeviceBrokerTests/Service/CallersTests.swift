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
}
