import Basics
import Glibc
import NotifyCenterTestKit
import Synchronization
import Testing

@testable import DBus

/// A relay between clients and a bus. Tests insert bytes between the bus's messages.
private final class Relay: Sendable {
    let bus: Bus
    private let directory: TemporaryDirectory
    private let listener: CInt
    private final class Clients: Sendable { let sockets = Locked<[CInt]>([]) }
    private let clients = Clients()

    /// - Parameter pieceBytes: how many of the bus's bytes a client gets at once.
    init(_ target: PrivateBus, pieceBytes: Int = 4096) throws {
        directory = try TemporaryDirectory("relay")
        let path = "\(directory.path)/bus"
        bus = .address("unix:path=\(path)")
        let (listener, isBound) = unixSocket(at: path, bind)
        self.listener = listener
        try #require(isBound && listen(listener, 16) == 0)
        let targetPath = String(target.address.dropFirst("unix:path=".count))
        _ = QuietThread.start("relay") { [clients] in
            while true {
                let client = accept(listener, nil, nil)
                guard client >= 0 else { break }
                let (server, _) = unixSocket(at: targetPath, connect)
                clients.sockets.withLock { $0.append(client) }
                _ = QuietThread.start("to bus") { Self.pass(from: client, to: server, 4096) }
                _ = QuietThread.start("from bus") { Self.pass(from: server, to: client, pieceBytes) }
            }
            close(listener)
        }
    }

    deinit {
        shutdown(listener, CInt(SHUT_RDWR))
        hangUp()
        // The threads may still use the other sockets, which the end of the test process closes.
    }

    /// Sends bytes to the last client.
    func insert(_ bytes: [UInt8], with descriptors: [CInt] = []) -> Bool {
        clients.sockets.withLock { $0.last }.map { send(bytes, with: descriptors, to: $0) } ?? false
    }

    func hangUp() { clients.sockets.withLock { for client in $0 { shutdown(client, CInt(SHUT_RDWR)) } } }

    private static func pass(from source: CInt, to target: CInt, _ pieceBytes: Int) {
        var buffer = [UInt8](repeating: 0, count: pieceBytes)
        while true {
            let count = read(source, &buffer, buffer.count)
            guard count > 0, Glibc.send(target, buffer, count, CInt(MSG_NOSIGNAL)) == count else { break }
        }
        for end in [source, target] { shutdown(end, CInt(SHUT_RDWR)) }
    }
}

@Suite("A bus that sends what no bus should send")
struct HostileBusTests {
    private typealias Message = MessageReaderTests.RawCall

    struct Attack: Sendable, CustomTestStringConvertible {
        let testDescription: String
        let bytes: [UInt8]
        /// Whether the bytes cannot be split into messages, so that the client has to connect again.
        let endsConnection: Bool
        /// Whether the bus hangs up after them.
        let hangsUp: Bool

        init(_ description: String, _ bytes: [UInt8], endsConnection: Bool = false, hangsUp: Bool = false) {
            (testDescription, self.bytes) = (description, bytes)
            (self.endsConnection, self.hangsUp) = (endsConnection, hangsUp)
        }
    }

    private static let attacks = [
        Attack(
            "replies to calls that were never made",
            Message(type: 2, replySerial: 4_000_000).bytes + Message(type: 3, replySerial: 4_000_001).bytes
        ),
        Attack("a reply to serial 0", Message(type: 2, replySerial: 0).bytes),
        Attack(
            "the other byte order",
            Message(isBigEndian: true).bytes + Message(isBigEndian: true, type: 2, replySerial: 9).bytes
        ),
        Attack("a message type that does not exist", Message(type: 77).bytes),
        Attack("a length that cuts off the text", Array(Message(bodyLength: 8).bytes.dropLast(4))),
        Attack("an endless header", Message(path: "/" + String(repeating: "a", count: 100_000)).bytes),
        Attack("half a message, and the end", Array(Message().bytes.dropLast(20)), hangsUp: true),
        Attack("half a header, and the end", Array(Message().bytes.prefix(9)), hangsUp: true),
        Attack("a promise of 128 MiB, and the end", Message(bodyLength: 128 << 20 - 4096).bytes, hangsUp: true),
        Attack("an unknown version", Message(version: 9).bytes, endsConnection: true),
        Attack("a text instead of a message", Array("HTTP/1.1 400 Bad Request\r\n".utf8), endsConnection: true),
    ]

    @Test("a connection survives it, or is restored", arguments: attacks)
    func attack(_ attack: Attack) async throws {
        let bus = try PrivateBus()
        let relay = try Relay(bus)
        let connection = try DBusConnection.open(relay.bus)
        let counter = try Counter(connection)
        let poster = try DBusConnection.open(bus.bus)
        // The bus has then sent all that it has for this client.
        try await connection.flush()
        #expect(relay.insert(attack.bytes))
        if attack.hangsUp { relay.hangUp() }
        if attack.endsConnection || attack.hangsUp {
            try await eventually("the connection is restored") { connection.statistics.reconnections > 0 }
        }
        try await eventually("a signal arrives") {
            try poster.send(try .ping())
            return counter.arrived > 0
        }
        #expect(connection.statistics.reconnections == (attack.endsConnection || attack.hangsUp ? 1 : 0))
        withExtendedLifetime((bus, relay)) {}
    }

    @Test("descriptors that no message promises are closed")
    func unsolicitedDescriptors() async throws {
        let bus = try PrivateBus()
        let relay = try Relay(bus)
        let connection = try DBusConnection.open(relay.bus)
        let pipe = try MessageReaderTests.DescriptorPipe()
        try await connection.flush()
        let reply = Message(type: 2, replySerial: 4_000_000).bytes
        #expect(relay.insert(reply, with: Array(repeating: pipe.writeEnd, count: 253)))
        try await connection.flush()
        #expect(pipe.closeLast())
        #expect(connection.statistics.reconnections == 0)
        withExtendedLifetime((bus, relay)) {}
    }

    @Test("a bus that sends single bytes admits a client and delivers")
    func trickle() async throws {
        let bus = try PrivateBus()
        let relay = try Relay(bus, pieceBytes: 1)
        let counter = try Counter(try DBusConnection.open(relay.bus))
        try DBusConnection.open(bus.bus).send(try .ping(bytes: 2000))
        try await eventually("the signal arrives") { counter.arrived == 1 }
        withExtendedLifetime((bus, relay)) {}
    }
}
