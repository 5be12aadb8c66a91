import Basics
import DBus
import Foundation
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Synchronization
import Testing

@testable import SignInPrompt

@Suite("The loopback listener of a sign-in")
struct LoopbackListenerTests {
    private final class Client {
        private let descriptor: CInt

        init(port: UInt16, address: UInt32 = 0x7F00_0001) throws {
            descriptor = socket(AF_INET, CInt(SOCK_STREAM.rawValue) | O_CLOEXEC, 0)
            var target = sockaddr_in()
            target.sin_family = sa_family_t(AF_INET)
            target.sin_port = port.bigEndian
            target.sin_addr.s_addr = address.bigEndian
            let code = withUnsafePointer(to: &target) {
                $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
                }
            }
            guard code == 0 else { throw POSIXError(POSIXErrorCode(rawValue: errno) ?? .EIO) }
        }

        deinit { close(descriptor) }

        func send(_ text: String) {
            let bytes = Array(text.utf8)
            _ = Glibc.send(descriptor, bytes, bytes.count, CInt(MSG_NOSIGNAL))
        }

        /// Reads until the listener closes the connection.
        func answer() async -> String {
            let descriptor = descriptor
            return await onSystemThread {
                var bytes: [UInt8] = []
                var buffer = [UInt8](repeating: 0, count: 65_536)
                while true {
                    let count = read(descriptor, &buffer, buffer.count)
                    guard count > 0 else { return String(decoding: bytes, as: UTF8.self) }
                    bytes += buffer[..<count]
                }
            }
        }

        func status() async -> String { String(await answer().prefix(12).suffix(3)) }
    }

    private static let page = LoopbackResponse(.ok, .message("Here", "It is."))

    /// Responds with a listener that may be created after the first visitor arrives.
    private final class Answering: Sendable {
        private let listener = Locked<LoopbackListener?>(nil)

        func begin(_ listener: LoopbackListener) { self.listener.withLock { $0 = listener } }

        func answer(_ visitor: SignInPrompt.Visitor) async throws {
            try await eventually("there is a listener") { listener.withLock { $0 != nil } }
            listener.withLock { $0 }?.respond(visitor, LoopbackListenerTests.page)
        }
    }

    /// A listener that responds to requests for `/`.
    private func listener(ports: [UInt16] = [], patience: Duration = .seconds(5)) throws -> LoopbackListener {
        let answering = Answering()
        let listener = try LoopbackListener(ports: ports, patience: patience) { visitor, request in
            if request.path == "/" { Task { try await answering.answer(visitor) } }
        }
        answering.begin(listener)
        return listener
    }

    private func request(_ path: String, of listener: LoopbackListener) -> String {
        "GET \(path) HTTP/1.1\r\nHost: \(listener.place.host)\r\n\r\n"
    }

    @Test("a request gets one response, and the connection ends")
    func answers() async throws {
        let listener = try listener()
        let client = try Client(port: listener.place.port)
        client.send(request("/", of: listener) + request("/", of: listener))
        let answer = await client.answer()
        #expect(answer.hasPrefix("HTTP/1.1 200 OK\r\n") && answer.hasSuffix("</html>\n"))
        #expect(answer.components(separatedBy: "HTTP/1.1").count == 2)
        await listener.close()
    }

    @Test("a slow visitor is refused and does not delay other visitors")
    func slow() async throws {
        let listener = try listener(patience: .milliseconds(500))
        let slow = try Client(port: listener.place.port)
        slow.send("GET / HTTP/1.1\r\nHost:")
        let quick = try Client(port: listener.place.port)
        quick.send(request("/", of: listener))
        #expect(await quick.status() == "200")
        #expect(await slow.status() == "408")
        await listener.close()
    }

    @Test("idle connections make room for an active one")
    func idle() async throws {
        let listener = try listener()
        let idle = try (0..<40).map { _ in try Client(port: listener.place.port) }
        let client = try Client(port: listener.place.port)
        client.send(request("/", of: listener))
        #expect(await client.status() == "200")
        withExtendedLifetime(idle) {}
        await listener.close()
    }

    @Test(
        "other users' connections are closed unread and delay no visitor",
        .enabled(if: geteuid() == 0, "only root can be several users")
    )
    func strangers() async throws {
        let served = Locked(0)
        let answering = Answering()
        let listener = try LoopbackListener(ports: []) { visitor, _ in
            served.withLock { $0 += 1 }
            Task { try await answering.answer(visitor) }
        }
        answering.begin(listener)
        // Thirty connections at a time, each with a complete request. A new one replaces each that ends.
        let attack = #"""
            import selectors, socket, sys
            port, ended = int(sys.argv[1]), 0
            def connection():
                one = socket.create_connection(("127.0.0.1", port), 60)
                try:
                    one.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % port)
                except OSError:
                    pass
                looks.register(one, selectors.EVENT_READ)
            looks = selectors.DefaultSelector()
            for _ in range(30): connection()
            print("attacks", flush=True)
            while ended < 1000:
                for key, _ in looks.select(60) or sys.exit("held open"):
                    looks.unregister(key.fileobj)
                    try:
                        text = key.fileobj.recv(100)
                    except ConnectionResetError:
                        text = b""
                    if text: sys.exit("served: " + repr(text))
                    key.fileobj.close()
                    ended += 1
                    connection()
            """#
        let stranger = try ChildProcess(as: 2, "/usr/bin/python3", ["-c", attack, "\(listener.place.port)"])
        try await stranger.line { $0 == "attacks" }
        for _ in 0..<20 {
            let client = try Client(port: listener.place.port)
            client.send(request("/", of: listener))
            #expect(await client.status() == "200")
        }
        #expect(await stranger.exitStatus() == 0, "\(stranger.errorText)")
        #expect(served.withLock { $0 } == 20)
        await listener.close()
    }

    @Test("closing the listener ends visitors without a response and accepts no other")
    func closing() async throws {
        let listener = try listener()
        let waiting = try Client(port: listener.place.port)
        waiting.send(request("/unanswered", of: listener))
        let other = try Client(port: listener.place.port)
        other.send(request("/", of: listener))
        #expect(await other.status() == "200")
        await listener.close()
        #expect(await waiting.answer() == "")
        #expect(throws: POSIXError.self) { _ = try Client(port: listener.place.port) }
    }

    @Test("a response sent just before the listener closes arrives")
    func lastResponse() async throws {
        for _ in 0..<50 {
            let (visitors, visitor) = AsyncStream.makeStream(of: SignInPrompt.Visitor.self)
            let listener = try LoopbackListener(ports: []) { number, _ in visitor.yield(number) }
            let client = try Client(port: listener.place.port)
            client.send(request("/", of: listener))
            for await number in visitors {
                listener.respond(number, Self.page)
                break
            }
            await listener.close()
            #expect(await client.status() == "200")
        }
    }

    @Test("the listener accepts connections only at 127.0.0.1")
    func address() async throws {
        let listener = try listener()
        #expect(throws: POSIXError.self) { _ = try Client(port: listener.place.port, address: 0x7F00_0002) }
        await listener.close()
    }

    @Test(
        "the first free port of the list is used, else another port with the reason"
    )
    func ports() async throws {
        let first = try listener()
        let port = try freePort()
        let second = try listener(ports: [first.place.port, port])
        #expect(second.place.port == port)
        #expect(second.place.problem == nil)
        let third = try listener(ports: [first.place.port, port])
        #expect(![first.place.port, port].contains(third.place.port))
        let problem = third.place.problem
        #expect(problem?.code == .providerMisconfigured && problem?.message.contains("oidcLoopbackPorts") == true)
        await third.close()
        await first.close()
        await second.close()
    }

    @Test("every page has a different, unguessable path")
    func paths() async throws {
        var paths: Set<String> = []
        for _ in 0..<20 {
            let listener = try listener()
            paths.insert(listener.place.path)
            #expect(listener.place.path.utf8.count == 33)
            await listener.close()
        }
        #expect(paths.count == 20)
    }
}
