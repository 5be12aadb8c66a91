import Basics
import DBus
import FoundationEssentials
import Glibc
import NotifyCenterTestKit
import Synchronization
import TestProviders
import Testing

@testable import HTTPListening

/// Listening at addresses, at own sockets and at sockets that a service manager passes.
@Suite("The logout listener's sockets")
struct LogoutListenerTests {
    private func token(_ fault: String) async throws -> String {
        try await FaultyProvider.shared.value.client(fault).page("logout-token")
    }

    @Test("an address in use is retried until it is free")
    func taken() async throws {
        let other = try StreamSocket()
        let port = try other.bindToAnyPort()
        try other.listen()
        let device = try await LogoutDevice(fault: "backchannel-none.taken", port: port)
        try await eventually("it is said") { device.device.process.errorText.contains("cannot listen for logouts") }
        let token = try await token("backchannel-none.taken")
        other.shut()
        try await eventually("somebody listens") {
            (try? await device.post("logout_token=\(token)"))?.hasPrefix("HTTP/1.1 200") == true
        }
        #expect(device.events.withLock { $0.count } == 1)
        #expect(device.device.process.errorText.components(separatedBy: "cannot listen for logouts").count == 2)
    }

    @Test("another address with the same port replaces the first one at once")
    func moved() async throws {
        let fault = "backchannel-none.moved"
        let device = try await LogoutDevice(fault: fault)
        for number in 0..<6 {
            let isNarrow = number % 2 == 0
            let silent = try StreamSocket()
            try silent.connect(device.port, isNarrow ? "127.0.0.1" : "127.0.0.2")
            try await device.listen(at: "\(isNarrow ? "0.0.0.0" : "127.0.0.1"):\(device.port)", fault: fault)
            try await eventually("move \(number)") {
                device.device.process.errorText.components(separatedBy: "listens for logouts").count == number + 3
            }
            withExtendedLifetime(silent) {}
        }
        let log = device.device.process.errorText
        #expect(!log.contains("cannot listen for logouts"), "\(log)")
    }

    @Test("a socket from the service manager stays in use after configuration changes")
    func passed() async throws {
        let fault = "backchannel-none.passed"
        let directory = try TemporaryDirectory("passed")
        let path = directory.path + "/logout.socket"
        let device = try await LogoutDevice(fault: fault, at: "/nowhere/logout.socket", passed: path)
        #expect(try await device.post("logout_token=\(try await token(fault))", to: path).hasPrefix("HTTP/1.1 200"))
        try await device.listen(at: "/nowhere/else.socket", fault: fault)
        try await eventually("the change") {
            device.device.process.errorText.contains("/nowhere/else.socket")
        }
        #expect(try await device.post("logout_token=\(try await token(fault))", to: path).hasPrefix("HTTP/1.1 200"))
        #expect(device.events.withLock { $0.count } == 2)
        // Child processes do not inherit the socket.
        let descriptor = "/proc/\(device.device.process.identifier)/fdinfo/3"
        let flags = try String(contentsOfFile: descriptor, encoding: .utf8).split(separator: "\n")
            .first { $0.hasPrefix("flags:") }.flatMap { Int($0.dropFirst(6).filter { $0 != "\t" }, radix: 8) }
        #expect(try #require(flags) & Int(O_CLOEXEC) != 0)
    }

    @Test("a socket that an earlier process left at the path is replaced")
    func path() async throws {
        let fault = "backchannel-none.path"
        let directory = try TemporaryDirectory("logout")
        let path = directory.path + "/logout.socket"
        close(try ListeningSocket.open(path: path))
        let device = try await LogoutDevice(fault: fault, at: path)
        #expect(try await device.post("logout_token=\(try await token(fault))", to: path).hasPrefix("HTTP/1.1 200"))
    }

    @Test("a listener that gets no thread closes its socket and frees the address")
    func noThread() async throws {
        let directory = try TemporaryDirectory("no-thread")
        let path = directory.path + "/logout.socket"
        let descriptor = try ListeningSocket.open(path: path)
        #expect(throws: DBusError.self) {
            try HTTPListener(
                adopting: descriptor,
                HTTPListener.Limits(),
                HTTPListener.Door(),
                { _ in ListenerResponse(200) },
                on: { _ in false }
            )
        }
        // A process that another test forks at this moment holds a copy of each descriptor until its exec.
        try await eventually("nobody is behind it any more") {
            do {
                try StreamSocket(AF_UNIX).connect(to: path)
                return false
            } catch is NoAddress {
                return true
            }
        }
    }

    @Test("more silent clients than places delay no logout")
    func silentClients() async throws {
        let fault = "backchannel-none.silent"
        let device = try await LogoutDevice(fault: fault)
        let silent = try (0..<64).map { _ in try StreamSocket() }
        for client in silent { try client.connect(device.port) }
        #expect(try await device.post("logout_token=\(try await token(fault))").hasPrefix("HTTP/1.1 200"))
        #expect(device.events.withLock { $0.count } == 1)
        withExtendedLifetime(silent) {}
    }

    @Test(
        "a client that sends slowly or too much gives up its place as well",
        arguments: ["", "POST / HTTP/1.1\r\n", "nonsense\r\n\r\n"]
    )
    func places(beginning: String) async throws {
        let directory = try TemporaryDirectory("places")
        let path = directory.path + "/logout.socket"
        var limits = HTTPListener.Limits()
        // Without this, the patience alone would free the places.
        limits.patience = .seconds(600)
        let listener = try HTTPListener(adopting: try ListeningSocket.open(path: path), limits: limits) { _ in
            ListenerResponse(200)
        }
        let clients = try (0..<64).map { _ in try StreamSocket(AF_UNIX) }
        let answer: String = try await aside {
            for client in clients {
                try client.connect(to: path)
                client.send(beginning)
            }
            let last = try StreamSocket(AF_UNIX)
            try last.connect(to: path)
            last.send("POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\na")
            return last.readToEnd()
        }
        #expect(answer.hasPrefix("HTTP/1.1 200"), "\(answer)")
        withExtendedLifetime(clients) {}
        await listener.close()
    }

    private final class Handlers: Sendable {
        /// Whether the waiting handlers may end.
        let isOpen = Locked(false)
        let calls = Locked((all: 0, running: 0, most: 0))

        func run(_ body: () async -> Void) async {
            calls.withLock { calls in
                calls.all += 1
                calls.running += 1
                calls.most = max(calls.most, calls.running)
            }
            await body()
            calls.withLock { $0.running -= 1 }
        }
    }

    /// A listener for four connections. The handler of `/wait` runs `wait` before it responds.
    private func listener(
        at path: String,
        _ handlers: Handlers,
        wait: @escaping @Sendable () async -> Void
    ) throws -> HTTPListener {
        var limits = HTTPListener.Limits()
        limits.connections = 4
        limits.patience = .seconds(600)
        limits.handling = nil
        return try HTTPListener(adopting: try ListeningSocket.open(path: path), limits: limits) { request in
            if request.path == "/wait" { await handlers.run(wait) }
            return ListenerResponse(200)
        }
    }

    private func client(_ path: String, asks target: String) throws -> StreamSocket {
        let client = try StreamSocket(AF_UNIX)
        try client.connect(to: path)
        client.send("GET \(target) HTTP/1.1\r\n\r\n")
        return client
    }

    @Test("clients that hang up while their requests are handled free their places")
    func hungUp() async throws {
        let directory = try TemporaryDirectory("hung-up")
        let path = directory.path + "/logout.socket"
        let handlers = Handlers()
        let listener = try listener(at: path, handlers) { try? await Task.sleep(for: .seconds(600)) }
        for round in 1...3 {
            let clients = try (0..<4).map { _ in try client(path, asks: "/wait") }
            try await eventually("they are handled") { handlers.calls.withLock { $0.all } == 4 * round }
            withExtendedLifetime(clients) {}
        }
        let last = try client(path, asks: "/now")
        let response = try await aside { last.readToEnd() }
        #expect(response.hasPrefix("HTTP/1.1 200"), "\(response)")
        await listener.close()
    }

    @Test("a client that has shut down its sending direction still gets the response")
    func halfClosed() async throws {
        let directory = try TemporaryDirectory("half-closed")
        let path = directory.path + "/logout.socket"
        let (gate, opened) = AsyncStream.makeStream(of: Void.self)
        let handlers = Handlers()
        let listener = try listener(at: path, handlers) { for await _ in gate {} }
        let client = try client(path, asks: "/wait")
        client.endOutput()
        try await eventually("it is handled") { handlers.calls.withLock { $0.all } == 1 }
        let other = try self.client(path, asks: "/now")
        #expect(try await aside { other.readToEnd() }.hasPrefix("HTTP/1.1 200"))
        opened.finish()
        #expect(try await aside { client.readToEnd() }.hasPrefix("HTTP/1.1 200"))
        await listener.close()
    }

    @Test("handlers without a client are at most twice the number of places")
    func stubbornHandlers() async throws {
        let directory = try TemporaryDirectory("stubborn")
        let path = directory.path + "/logout.socket"
        let handlers = Handlers()
        let listener = try listener(at: path, handlers) {
            // The wait goes on even if the handler is cancelled.
            await Task { try? await eventually("it is let go") { handlers.isOpen.withLock { $0 } } }.value
        }
        for number in 1...20 {
            let client = try client(path, asks: "/wait")
            if number <= 4 {
                try await eventually("it is handled") { handlers.calls.withLock { $0.all } == number }
            }
            client.shut()
        }
        handlers.isOpen.withLock { $0 = true }
        let last = try client(path, asks: "/now")
        #expect(try await aside { last.readToEnd() }.hasPrefix("HTTP/1.1 200"))
        #expect(handlers.calls.withLock { $0.most } <= 8)
        await listener.close()
    }

    @Test("a client that sends nothing in time gets status 408")
    func late() async throws {
        let directory = try TemporaryDirectory("late")
        let path = directory.path + "/logout.socket"
        var limits = HTTPListener.Limits()
        limits.patience = .milliseconds(100)
        let listener = try HTTPListener(adopting: try ListeningSocket.open(path: path), limits: limits) { _ in
            ListenerResponse(200)
        }
        let answer: String = try await aside {
            let client = try StreamSocket(AF_UNIX)
            try client.connect(to: path)
            return client.readToEnd()
        }
        #expect(answer.hasPrefix("HTTP/1.1 408"), "\(answer)")
        await listener.close()
    }

    @Test("a socket's name is written as in the configuration")
    func names() throws {
        let directory = try TemporaryDirectory("names")
        let path = directory.path + "/logout.socket"
        let local = try ListeningSocket.open(path: path)
        defer { close(local) }
        #expect(ListeningSocket.name(of: local) == path)
        let network = try ListeningSocket.open(address: "127.0.0.1", port: 0)
        defer { close(network) }
        let parts = try #require(ListeningSocket.name(of: network)).split(separator: ":")
        #expect(parts.first == "127.0.0.1")
        try StreamSocket().connect(try #require(parts.last.flatMap { UInt16($0) }))
        let six: [UInt8] = [10, 0, 0x12, 0xCA, 0, 0, 0, 0] + [UInt8](repeating: 0, count: 15) + [1, 0, 0, 0, 0]
        #expect(ListeningSocket.name(AF_INET6, six) == "[::1]:4810")
        for count in [0, 7, 23] {
            let isCut = ListeningSocket.name(count == 23 ? AF_INET6 : AF_INET, Array(six.prefix(count))) == nil
            #expect(isCut, "\(count)")
        }
        // Without a name, and with a name that is not a path.
        for bytes: [UInt8] in [[], [1, 0], [1, 0, 0, 65]] { #expect(ListeningSocket.name(AF_UNIX, bytes) == nil) }
        #expect(ListeningSocket.name(of: -1) == nil)
        #expect(throws: ListeningSocket.Failure.self) { try ListeningSocket.duplicate(-1) }
    }

    @Test("a file that is no socket is kept, and an error names the path and a remedy")
    func paths() throws {
        let directory = try TemporaryDirectory("paths")
        let file = directory.path + "/notes.txt"
        try "notes".write(toFile: file, atomically: true, encoding: .utf8)
        for (path, reason) in [
            (file, "Address already in use"), (directory.path + "/no/logout.socket", "No such file"),
            (directory.path + "/" + String(repeating: "a", count: 120), "too long"),
        ] {
            let error = #expect(throws: ListeningSocket.Failure.self) { try ListeningSocket.open(path: path) }
            let text = try #require(error).description
            #expect(text.contains(reason) && text.contains(path), "\(text)")
        }
        #expect(try String(contentsOfFile: file, encoding: .utf8) == "notes")
    }

    @Test("sockets that were passed to another process are ignored")
    func notPassed() {
        for environment in [
            [:], ["LISTEN_FDS": "1"], ["LISTEN_PID": "1", "LISTEN_FDS": "1"],
            ["LISTEN_PID": "\(getpid())", "LISTEN_FDS": "0"], ["LISTEN_PID": "\(getpid())", "LISTEN_FDS": "x"],
            ["LISTEN_PID": "\(getpid())"],
        ] {
            #expect(ListeningSocket.passed(environment: environment) == nil, "\(environment)")
        }
    }
}
