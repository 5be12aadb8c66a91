import Basics
import DBus
import Foundation
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Synchronization
import TestProviders
import Testing

@testable import HTTPListening
@testable import SignInPrompt

@Suite("The loopback listener of a sign-in")
struct LoopbackListenerTests {
    private static let page = ListenerResponse(page: .message("Here", "It is."))

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
    private func listener(ports: [UInt16] = []) throws -> LoopbackListener {
        let answering = Answering()
        let listener = try LoopbackListener(ports: ports) { visitor, request in
            if request.path == "/" { Task { try await answering.answer(visitor) } }
        }
        answering.begin(listener)
        return listener
    }

    /// Reads until the listener closes the connection.
    private func answer(_ client: StreamSocket) async -> String { await onThread { client.readToEnd() } }

    private func status(_ client: StreamSocket) async -> String { String(await answer(client).prefix(12).suffix(3)) }

    private func request(_ path: String, of listener: LoopbackListener) -> String {
        "GET \(path) HTTP/1.1\r\nHost: \(listener.place.host)\r\n\r\n"
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
            let client = try StreamSocket(to: listener.place.port)
            client.send(request("/", of: listener))
            #expect(await status(client) == "200")
        }
        #expect(await stranger.exitStatus() == 0, "\(stranger.errorText)")
        #expect(served.withLock { $0 } == 20)
        await listener.close()
    }

    @Test("a request gets one response; closing the listener ends other visits without one")
    func closing() async throws {
        let listener = try listener()
        let waiting = try StreamSocket(to: listener.place.port)
        waiting.send(request("/unanswered", of: listener))
        let other = try StreamSocket(to: listener.place.port)
        other.send(request("/", of: listener) + request("/", of: listener))
        let text = await answer(other)
        #expect(text.hasPrefix("HTTP/1.1 200 OK\r\n") && text.hasSuffix("</html>\n"))
        #expect(text.components(separatedBy: "HTTP/1.1").count == 2)
        await listener.close()
        #expect(await answer(waiting) == "")
        #expect(throws: NoAddress.self) { _ = try StreamSocket(to: listener.place.port) }
    }

    @Test("a response sent just before the listener closes arrives")
    func lastResponse() async throws {
        for _ in 0..<50 {
            let (visitors, visitor) = AsyncStream.makeStream(of: SignInPrompt.Visitor.self)
            let listener = try LoopbackListener(ports: []) { number, _ in visitor.yield(number) }
            let client = try StreamSocket(to: listener.place.port)
            client.send(request("/", of: listener))
            for await number in visitors {
                listener.respond(number, Self.page)
                break
            }
            await listener.close()
            #expect(await status(client) == "200")
        }
    }

    @Test("the first free port is used, else another with the reason, at 127.0.0.1 only")
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
        #expect(throws: NoAddress.self) { _ = try StreamSocket(to: first.place.port, "127.0.0.2") }
        for listener in [first, second, third] { await listener.close() }
        // Every page has a different, unguessable path.
        var paths: Set<String> = []
        for _ in 0..<20 {
            let listener = try listener()
            paths.insert(listener.place.path)
            await listener.close()
        }
        #expect(paths.count == 20 && paths.allSatisfy { $0.utf8.count == 33 })
    }
}

@Suite("Requests for the page of a sign-in")
struct LoopbackRequestTests {
    private static let host = "127.0.0.1:4711"
    private static let form = "application/x-www-form-urlencoded"

    private func take(
        _ method: String,
        query: String? = nil,
        host: String? = LoopbackRequestTests.host,
        type: String? = nil,
        body: [UInt8] = []
    ) throws(LoopbackRequest.Refusal) -> LoopbackRequest {
        let fields = ["host": host, "content-type": type].compactMapValues { $0 }
        let received = ReceivedRequest(method: method, path: "/page", query: query, fields: fields, body: body)
        return try LoopbackRequest(received, host: Self.host)
    }

    @Test("a request for the page and its form are accepted unchanged, others are refused")
    func requests() throws {
        #expect(try take("GET", query: "code=a%20b") == LoopbackRequest(path: "/page", query: "code=a%20b"))
        let text = "username=ada&password=p%C3%A4ss"
        let form = LoopbackRequest(path: "/page", method: .post, form: text)
        #expect(try take("POST", type: Self.form + "; charset=utf-8", body: Array(text.utf8)) == form)
        // A browser would not send these.
        let notFound = LoopbackRequest.Refusal(status: 404)
        #expect(throws: notFound) { try take("PUT") }
        #expect(throws: notFound) { try take("GET", host: nil) }
        #expect(throws: notFound) { try take("GET", host: "evil.example") }
        let malformed = LoopbackRequest.Refusal(status: 400)
        #expect(throws: malformed) { try take("GET", body: [0x78]) }
        #expect(throws: malformed) { try take("POST", body: [0x78]) }
        #expect(throws: malformed) { try take("POST", type: "application/json", body: [0x78]) }
        #expect(throws: malformed) { try take("POST", type: Self.form, body: [0xFF]) }
    }
}
