import Fleet
import FleetStage
import Foundation
import Glibc
import MQTTClient
@_spi(Extensions) import NotifyCenterTestKit
import Testing

/// The client's bytes, and its tolerance of a server that breaks every rule. The tests are the server.
@Suite("A fleet's bytes on the wire")
struct FleetWireTests {
    @Test("FL-9, FL-11: the first packet has limits and will; the server sets the pings")
    func greeting() async throws {
        let server = try Listener()
        let will = FleetConnectionTests.presence
        var options = server.options
        options.will = will
        let client = try MQTTClient(options) { _ in }
        let (greeting, said) = await onThread { () -> ([UInt8], [UInt8]) in
            let connection = server.take()
            defer { close(connection) }
            let greeting = Listener.read(connection)
            // The server accepts and sets its own keep-alive of a second, which replaces the client's.
            guard Listener.write([0x20, 6, 0, 0, 3, 0x13, 0, 1], to: connection) else { return (greeting, []) }
            var watched = pollfd(fd: connection, events: Int16(POLLIN), revents: 0)
            return (greeting, poll(&watched, 1, 40_000) > 0 ? Listener.read(connection) : [])
        }
        func text(_ bytes: [UInt8]) -> [UInt8] { [UInt8(bytes.count >> 8), UInt8(bytes.count & 0xFF)] + bytes }
        // MQTT 5.0, 3.1. The flags are: will retain, will QoS 1, will, clean start. The keep-alive is 60 s.
        var expected: [UInt8] = text(Array("MQTT".utf8)) + [5, 0b0010_1110, 0, 60]
        // The session expires after 120 s, 20 messages may be in flight, and a packet has at most 64 KiB.
        expected += [13, 0x11, 0, 0, 0, 120, 0x21, 0, 20, 0x27, 0, 1, 0, 0]
        // The client identifier, and the will, which the server sends after 60 s.
        expected += text(Array("a".utf8)) + [5, 0x18, 0, 0, 0, 60]
        expected += text(Array(will.topic.utf8)) + text(will.payload)
        // The packet type and two bytes of length come first.
        #expect(greeting.first == 0x10 && Array(greeting.dropFirst(3)) == expected, "\(greeting)")
        #expect(said.prefix(2) == [0xC0, 0], "a ping")
        withExtendedLifetime(client) {}
    }

    @Test("FL-11, FL-8: the client leaves a server whose packet exceeds the limit", arguments: [4096, 1 << 20])
    func hugePacket(atOnce: Int) async throws {
        let server = try Listener()
        var options = server.options
        options.firstDelay = .seconds(100)
        let client = try FleetStage.Client(options)
        // A message of the largest length, which the library would buffer until it is complete.
        let greeting: [UInt8] = [0x20, 3, 0, 0, 0] + [0x30, 0xFF, 0xFF, 0xFF, 0x7F, 0, 1, 0x61, 0]
        // Then the server waits, because the client reads on while there is data.
        let isLeft = await onThread {
            let connection = server.take()
            defer { close(connection) }
            _ = Listener.read(connection)
            guard Listener.write(greeting, to: connection) else { return false }
            let zeros = [UInt8](repeating: 0, count: atOnce)
            for _ in 0..<(2 << 20) / atOnce where !Listener.write(zeros, to: connection) { return true }
            // Within less than the keep-alive, after which the client would send a ping.
            var watched = pollfd(fd: connection, events: Int16(POLLIN), revents: 0)
            return poll(&watched, 1, 50_000) > 0 && Listener.read(connection).isEmpty
        }
        #expect(isLeft, "the client waits for the rest")
        try await eventually("the client says why") {
            client.losses.contains { if case .tooMuch = $0.reason { true } else { false } }
        }
    }

    @Test("FL-11: a subscription that is refused ten thousand times is reported once")
    func refusalsWithoutEnd() async throws {
        let server = try Listener()
        let client = try FleetStage.Client(server.options)
        let connection = await onThread { server.take() }
        defer { close(connection) }
        _ = await onThread { Listener.read(connection) }
        #expect(Listener.write([0x20, 3, 0, 0, 0], to: connection))
        try await eventually("the client is connected") { client.isConnected }
        try client.subscribe(to: ["x"])
        // The packet type, its length, and the number of the subscription.
        let request = await onThread { Listener.read(connection) }
        #expect(request.first == 0x82)
        let number = Array(request.dropFirst(2).prefix(2))
        // 10,000 codes, then 10,000 packets about this and about an unknown subscription.
        let codes = [UInt8](repeating: 0x87, count: 10_000)
        var flood: [UInt8] = [0x90, 0x93, 0x4E] + number + [0] + codes
        for _ in 0..<5000 { flood += [0x90, 4] + number + [0, 0x87] + [0x90, 4, 0x7F, 0, 0, 0x87] }
        // The message “b” on the topic “a” follows all of that.
        flood += [0x30, 5, 0, 1, 0x61, 0, 0x62]
        let bytes = flood
        #expect(await onThread { Listener.write(bytes, to: connection) })
        try await eventually("the message is there") { !client.messages.isEmpty || !client.losses.isEmpty }
        #expect(client.messages.map(\.topic) == ["a"] && client.losses.isEmpty, "\(client.losses)")
        #expect(client.refusals.count == 1 && client.refusals.first?.reason == .refused(code: 0x87))
    }
}

// MARK: - A server that only listens

/// A listening socket on this machine.
final class Listener: Sendable {
    let port: UInt16
    let descriptor: CInt

    init() throws {
        port = try freePort()
        descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        var yes: CInt = 1
        setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, socklen_t(MemoryLayout<CInt>.size))
        guard withAddress(port, { bind(descriptor, $0, $1) }) == 0, listen(descriptor, 8) == 0 else {
            throw FleetStage.StageFailure("port \(port) cannot be served")
        }
    }

    deinit { close(descriptor) }

    /// A client of this server without TLS.
    var options: MQTTOptions { MQTTOptions(host: "127.0.0.1", port: port, clientIdentifier: "a", certificates: nil) }

    /// Accepts the next connection. Blocks.
    func take() -> CInt { accept(descriptor, nil, nil) }

    /// Reads the next bytes. Blocks.
    static func read(_ connection: CInt) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: 4096)
        let count = Glibc.read(connection, &bytes, bytes.count)
        return Array(bytes.prefix(max(0, count)))
    }

    /// Writes all bytes. Blocks.
    ///
    /// - Returns: `false` if the peer has closed the connection.
    static func write(_ bytes: [UInt8], to connection: CInt) -> Bool {
        var rest = bytes[...]
        while !rest.isEmpty {
            let taken = rest.withUnsafeBytes { send(connection, $0.baseAddress, $0.count, CInt(MSG_NOSIGNAL)) }
            guard taken > 0 else { return false }
            rest = rest.dropFirst(taken)
        }
        return true
    }

    /// The first bytes of the next connection. Blocks.
    func read() -> [UInt8] {
        let connection = take()
        defer { close(connection) }
        return Self.read(connection)
    }
}

func withAddress(_ port: UInt16, _ body: (UnsafePointer<sockaddr>, socklen_t) -> CInt) -> CInt {
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    address.sin_port = port.bigEndian
    let length = socklen_t(MemoryLayout<sockaddr_in>.size)
    return withUnsafePointer(to: &address) { pointer in
        pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { body($0, length) }
    }
}
