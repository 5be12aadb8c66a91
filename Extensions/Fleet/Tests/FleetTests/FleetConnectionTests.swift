import Basics
import DBus
import Fleet
import FleetStage
import Foundation
import Glibc
import MQTTClient
@_spi(Extensions) import NotifyCenterTestKit
import Synchronization
import Testing
import shared_device_agent

/// Covers when a device or the server counts as gone, and which keys and certificates are accepted.
@Suite("A fleet's connections")
struct FleetConnectionTests {
    static let presence = MQTTMessage.fleet(.presence(device: "a"), .presence(isOnline: false))

    @Test("FL-9: an agent's will is a retained message that it is gone")
    func will() async throws {
        let (directory, bus) = (try TemporaryDirectory("agent"), try PrivateBus())
        let text = """
            {"fleet": "clinic", "name": "ward-1", "host": "mqtt", "authority": "/a", "certificate": "/c", "key": "/k"}
            """
        let configuration = try FleetConfiguration(parsing: Array(text.utf8))
        let agent = try AgentService(
            .success(configuration),
            stateDirectory: directory.path,
            bus: bus.bus,
            checksKey: false
        ) { _ in }
        let options = try #require(agent.options)
        let will = try #require(options.will)
        #expect(will.topic == "sd/1/clinic/dev/ward-1/presence" && will.isRetained && will.isAcknowledged)
        #expect(try FleetEvent(parsing: will.payload).message == .presence(isOnline: false))
        let standard = MQTTOptions(host: "mqtt", port: 8883, clientIdentifier: "ward-1", certificates: nil)
        #expect(options.willDelay == standard.willDelay && options.sessionExpiry == standard.sessionExpiry)
        #expect(options.keepAlive == 60 && options.certificates?.key == "/k")
    }

    @Test("FL-9: a device that loses its network is reported as gone")
    func cutOff() async throws {
        let stage = try await FleetStage(enrolling: ["a", "b", "auditor"])
        let relay = try Relay(to: stage.port)
        let auditor = try await stage.connected("auditor", to: ["sd/1/clinic/dev/+/presence"])
        let ended = MQTTMessage.fleet(.presence(device: "b"), .presence(isOnline: false))
        let b = try stage.client("b") { ($0.will, $0.willDelay) = (ended, 0) }
        try await eventually("b is connected") { b.isConnected }
        b.connection.closeAndWait()
        var options = stage.options(identifier: "a", certificate: "a", port: relay.port)
        (options.will, options.willDelay) = (Self.presence, 1)
        let a = try FleetStage.Client(options)
        try await eventually("a is connected") { a.isConnected }
        #expect(auditor.messages.isEmpty)
        relay.cut()
        try await eventually("the will arrives") { !auditor.messages.isEmpty }
        try await eventually("a notices the loss, too") { !a.losses.isEmpty }
        #expect(auditor.messages.map(\.topic) == [Self.presence.topic])
    }

    @Test("FL-9: a suspended server counts as lost and is reconnected")
    func engineStopped() async throws {
        let stage = try await FleetStage(enrolling: ["a"])
        // The smallest value that the library accepts.
        let client = try stage.client("a") { $0.keepAlive = 5 }
        try await eventually("it is connected") { client.isConnected }
        stage.suspendEngine(true)
        try await eventually("the loss is seen") { !client.losses.isEmpty }
        stage.suspendEngine(false)
        try await eventually("it is connected again") {
            client.all.count { if case .connected = $0 { true } else { false } } >= 2
        }
    }

    @Test("FL-10: new files are used at the next attempt, a key that others may read is not")
    func files() async throws {
        let (stage, other) = (try await FleetStage(enrolling: ["a"]), try await FleetStage(enrolling: ["a"]))
        let files = stage.files("a")
        let copies = MQTTOptions.Certificates(
            authority: stage.path("copy.authority"),
            certificate: stage.path("copy.pem"),
            key: stage.path("copy.key")
        )
        func place(_ from: MQTTOptions.Certificates) throws {
            for (from, to) in [
                (from.authority, copies.authority), (from.certificate, copies.certificate), (from.key, copies.key),
            ] {
                try Data(contentsOf: URL(filePath: from)).write(to: URL(filePath: to), options: .atomic)
                chmod(to, 0o600)
            }
        }
        try place(other.files("a"))
        let client = try stage.client("a") {
            $0.certificates = copies
            $0.objection = { FleetFiles.objection(toKey: copies.key) }
        }
        try await eventually("neither trusts the other") { !client.losses.isEmpty }
        chmod(copies.key, 0o640)
        try await eventually("the key is rejected") {
            client.losses.contains {
                if case .objection(let text) = $0.reason { text.contains("chmod 600") } else { false }
            }
        }
        #expect(!client.isConnected)
        try place(files)
        try await eventually("the new files are used") { client.isConnected }
        // An agent does not start with such a key.
        chmod(files.key, 0o644)
        let agent = try Self.agent(on: stage)
        #expect(await agent.exitStatus() == EX_CONFIG)
        #expect(agent.errorText.contains("chmod 600"), "\(agent.errorText)")
    }

    private static func agent(on stage: FleetStage, environment: [String: String] = [:]) throws -> ChildProcess {
        try ChildProcess(
            ChildProcess.built("shared-device-agent"),
            ["--bus", stage.bus.address, "--configuration", stage.path("a.json"), "--state", stage.path("a-state")],
            environment: environment
        )
    }

    @Test("FL-10: less than TLS 1.2 is never offered, even if OpenSSL would")
    func oldTLS() async throws {
        let stage = try await FleetStage(enrolling: ["a"])
        let server = try Listener()
        let text = try String(contentsOfFile: stage.path("a.json"), encoding: .utf8)
        try text.replacing("\"port\": \(stage.port)", with: "\"port\": \(server.port)")
            .write(toFile: stage.path("a.json"), atomically: true, encoding: .utf8)
        let system = """
            openssl_conf = all
            [all]
            ssl_conf = ssl
            [ssl]
            system_default = old
            [old]
            MinProtocol = TLSv1
            CipherString = DEFAULT@SECLEVEL=0
            """
        try system.write(toFile: stage.path("openssl.cnf"), atomically: true, encoding: .utf8)
        let agent = try Self.agent(on: stage, environment: ["OPENSSL_CONF": stage.path("openssl.cnf")])
        let versions = try tlsVersions(of: await onThread { server.read() })
        #expect(versions.contains(0x0304) && versions.allSatisfy { $0 >= 0x0303 }, "\(versions)")
        agent.kill()
    }

    @Test("FL-10: a key needs its owner's rights alone, unless it is a systemd credential")
    func credential() throws {
        let directory = try TemporaryDirectory("credentials")
        let file = "\(directory.path)/key"
        try Data("key".utf8).write(to: URL(filePath: file))
        chmod(file, 0o440)
        #expect(FleetFiles.objection(toKey: file, credentials: directory.path) == nil)
        for other in [nil, "", "/run/credentials/x", String(directory.path.dropLast())] {
            #expect(FleetFiles.objection(toKey: file, credentials: other)?.contains("chmod 600") == true)
        }
        chmod(file, 0o444)
        #expect(FleetFiles.objection(toKey: file, credentials: directory.path) != nil)
        chmod(file, 0o600)
        #expect(FleetFiles.objection(toKey: file) == nil)
        // Only root can give a file away.
        guard geteuid() == 0 else { return }
        #expect(chown(file, 65534, 65534) == 0)
        #expect(FleetFiles.objection(toKey: file)?.contains("chown \(geteuid())") == true)
    }
}

// MARK: - Helpers

private struct WrongHello: Error {}

/// The TLS versions that a client offers in its first message (RFC 8446, 4.1.2 and 4.2.1).
private func tlsVersions(of hello: [UInt8]) throws -> [Int] {
    var rest = hello[...]
    func take(_ count: Int) throws -> ArraySlice<UInt8> {
        guard rest.count >= count else { throw WrongHello() }
        defer { rest = rest.dropFirst(count) }
        return rest.prefix(count)
    }
    func number(_ count: Int) throws -> Int { try take(count).reduce(0) { $0 << 8 | Int($1) } }
    // A handshake record that contains a ClientHello.
    guard try number(1) == 22, try number(4) & 0xFFFF == rest.count, try number(1) == 1 else { throw WrongHello() }
    _ = try number(3)
    let highest = try number(2)
    _ = try take(32)
    for width in [1, 2, 1] { _ = try take(try number(width)) }
    _ = try number(2)
    while !rest.isEmpty {
        let (kind, content) = (try number(2), try take(try number(2)))
        guard kind == 43 else { continue }
        let versions = Array(content.dropFirst())
        return stride(from: 0, to: versions.count - 1, by: 2).map { Int(versions[$0]) << 8 | Int(versions[$0 + 1]) }
    }
    return [highest]
}

/// A relay between a client and the server that can be cut without a disconnect from either side.
private final class Relay: Sendable {
    private let listener: Listener
    private let open = Locked<[CInt]>([])

    var port: UInt16 { listener.port }

    init(to server: UInt16) throws {
        listener = try Listener()
        guard
            QuietThread.start(
                "relay",
                { [self] in
                    let client = accept(listener.descriptor, nil, nil)
                    let other = socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
                    _ = withAddress(server) { connect(other, $0, $1) }
                    open.withLock { $0 = [client, other] }
                    for (from, to) in [(client, other), (other, client)] {
                        _ = QuietThread.start("relay") { Self.pass(from, to) }
                    }
                }
            ) != nil
        else { throw FleetStage.StageFailure("no thread") }
    }

    private static func pass(_ from: CInt, _ to: CInt) {
        var bytes = [UInt8](repeating: 0, count: 16_384)
        while true {
            let count = Glibc.read(from, &bytes, bytes.count)
            guard count > 0, Glibc.write(to, bytes, count) == count else { return }
        }
    }

    /// Shuts down both connections without an MQTT packet.
    func cut() {
        open.withLock { for descriptor in $0 { shutdown(descriptor, CInt(SHUT_RDWR)) } }
    }
}
