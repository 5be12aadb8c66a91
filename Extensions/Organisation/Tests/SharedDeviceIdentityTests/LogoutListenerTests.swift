import Basics
import DBus
import FoundationEssentials
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
import Synchronization
import TestProviders
import Testing

@testable import HTTPListening

/// A listener at a path, for tests without a device.
private final class LocalListener: Sendable {
    private let directory: TemporaryDirectory
    private let listener: HTTPListener
    let path: String

    /// - Parameter wait: what the handler of `/wait` does before it responds.
    init(
        connections: Int = 32,
        patience: Duration = .seconds(600),
        handling: Duration? = nil,
        wait: @escaping @Sendable () async -> Void = {}
    ) throws {
        directory = try TemporaryDirectory("listener")
        path = directory.path + "/logout.socket"
        var options = HTTPListener.Options()
        (options.connections, options.patience, options.handling) = (connections, patience, handling)
        listener = try HTTPListener(adopting: try ListeningSocket.open(path: path), options: options) { request in
            if request.path == "/wait" { await wait() }
            return ListenerResponse(200)
        }
    }

    func client(asks target: String) throws -> StreamSocket {
        let client = try StreamSocket(to: path)
        client.send("GET \(target) HTTP/1.1\r\n\r\n")
        return client
    }

    /// The status line of the response to a request that is handled at once.
    func responds() async throws -> String { try await Self.response(to: client(asks: "/now")) }

    static func response(to client: StreamSocket) async -> String {
        await onThread { String(client.readToEnd().prefix(12)) }
    }

    func close() async { await listener.close() }
}

/// Listening at addresses, at own sockets and at sockets that a service manager passes.
@Suite("The logout listener's sockets")
struct LogoutListenerTests {
    @Test("an address in use is retried until it is free")
    func taken() async throws {
        let other = try SilentServer()
        let device = try await LogoutDevice(fault: "backchannel-none.taken", port: other.port)
        try await eventually("the failure is logged") { device.log.contains("cannot listen for logouts") }
        let token = try await device.token()
        other.stop()
        try await eventually("a process listens") { (try? await device.post(token))?.hasPrefix("HTTP/1.1 200") == true }
        #expect(device.events.count == 1)
        #expect(device.log.components(separatedBy: "cannot listen for logouts").count == 2)
    }

    @Test("another address or path replaces the first address at once")
    func moved() async throws {
        let device = try await LogoutDevice(fault: "backchannel-none.moved")
        for number in 0..<6 {
            let isNarrow = number % 2 == 0
            let silent = try StreamSocket(to: device.port, isNarrow ? "127.0.0.1" : "127.0.0.2")
            try await device.listen(at: "\(isNarrow ? "0.0.0.0" : "127.0.0.1"):\(device.port)")
            try await eventually("move \(number)") {
                device.log.components(separatedBy: "listens for logouts").count == number + 3
            }
            withExtendedLifetime(silent) {}
        }
        // An earlier process left a socket at the path.
        let directory = try TemporaryDirectory("logout")
        let path = directory.path + "/logout.socket"
        close(try ListeningSocket.open(path: path))
        try await device.listen(at: path)
        try await eventually("a process listens at the path") {
            (try? await device.post(device.token(), to: path))?.hasPrefix("HTTP/1.1 200") == true
        }
        #expect(!device.log.contains("cannot listen for logouts"), "\(device.log)")
    }

    @Test("a socket from the service manager stays in use after configuration changes")
    func passed() async throws {
        let directory = try TemporaryDirectory("passed")
        let path = directory.path + "/logout.socket"
        let fault = "backchannel-none.passed"
        let device = try await LogoutDevice(fault: fault, at: "/nowhere/logout.socket", passed: path)
        #expect(try await device.post(device.token(), to: path).hasPrefix("HTTP/1.1 200"))
        try await device.listen(at: "/nowhere/else.socket")
        try await eventually("the change") { device.log.contains("/nowhere/else.socket") }
        #expect(try await device.post(device.token(), to: path).hasPrefix("HTTP/1.1 200"))
        #expect(device.events.count == 2)
        // Child processes do not inherit the socket.
        let descriptor = "/proc/\(device.device.process.identifier)/fdinfo/3"
        let flags = try String(contentsOfFile: descriptor, encoding: .utf8).split(separator: "\n")
            .first { $0.hasPrefix("flags:") }.flatMap { Int($0.dropFirst(6).filter { $0 != "\t" }, radix: 8) }
        #expect(try #require(flags) & Int(O_CLOEXEC) != 0)
    }

    @Test("a listener that gets no thread closes its socket and frees the address")
    func noThread() async throws {
        let directory = try TemporaryDirectory("no-thread")
        let path = directory.path + "/logout.socket"
        let descriptor = try ListeningSocket.open(path: path)
        #expect(throws: DBusError.self) {
            try HTTPListener(
                adopting: descriptor,
                HTTPListener.Options(),
                { _ in ListenerResponse(200) },
                on: { _ in false }
            )
        }
        // A process that another test forks at this moment holds a copy of each descriptor until its exec.
        try await eventually("no process listens any more") { (try? StreamSocket(to: path)) == nil }
    }

    @Test(
        "a client that sends nothing, slowly or too much gives up its place",
        arguments: ["", "POST / HTTP/1.1\r\n", "nonsense\r\n\r\n"]
    )
    func places(beginning: String) async throws {
        // With less patience, the time alone would free the places.
        let listener = try LocalListener(patience: .seconds(600))
        let clients = try (0..<64).map { _ in try StreamSocket(AF_UNIX) }
        try await onThread {
            for client in clients {
                try client.connect(to: listener.path)
                client.send(beginning)
            }
        }
        #expect(try await listener.responds() == "HTTP/1.1 200")
        withExtendedLifetime(clients) {}
        await listener.close()
    }

    @Test("clients that hang up free their places, clients that still read are answered")
    func hungUp() async throws {
        let calls = Locked(0)
        let (gate, opened) = AsyncStream.makeStream(of: Void.self)
        let listener = try LocalListener(connections: 4) {
            let isLast = calls.withLock { calls in
                calls += 1
                return calls == 13
            }
            if isLast { for await _ in gate {} } else { try? await Task.sleep(for: .seconds(600)) }
        }
        for round in 1...3 {
            let clients = try (0..<4).map { _ in try listener.client(asks: "/wait") }
            try await eventually("they are handled") { calls.withLock { $0 } == 4 * round }
            withExtendedLifetime(clients) {}
        }
        #expect(try await listener.responds() == "HTTP/1.1 200")
        // This client has shut down its sending direction only.
        let client = try listener.client(asks: "/wait")
        client.endOutput()
        try await eventually("it is handled") { calls.withLock { $0 } == 13 }
        #expect(try await listener.responds() == "HTTP/1.1 200")
        opened.finish()
        #expect(await LocalListener.response(to: client) == "HTTP/1.1 200")
        await listener.close()
    }

    @Test("handlers without a client are at most twice the number of places")
    func stubbornHandlers() async throws {
        final class Handlers: Sendable {
            let isOpen = Locked(false)
            let calls = Locked((all: 0, running: 0, most: 0))
        }
        let handlers = Handlers()
        let listener = try LocalListener(connections: 4) {
            handlers.calls.withLock { calls in
                calls.all += 1
                calls.running += 1
                calls.most = max(calls.most, calls.running)
            }
            // The wait goes on even if the handler is cancelled.
            await Task { try? await eventually("the handlers may return") { handlers.isOpen.withLock { $0 } } }.value
            handlers.calls.withLock { $0.running -= 1 }
        }
        for number in 1...20 {
            let client = try listener.client(asks: "/wait")
            if number <= 4 { try await eventually("it is handled") { handlers.calls.withLock { $0.all } == number } }
            client.shut()
        }
        handlers.isOpen.withLock { $0 = true }
        #expect(try await listener.responds() == "HTTP/1.1 200")
        #expect(handlers.calls.withLock { $0.most } <= 8)
        await listener.close()
    }

    @Test("a client that sends nothing in time gets status 408")
    func late() async throws {
        let listener = try LocalListener(patience: .milliseconds(100), handling: .seconds(30))
        #expect(try await LocalListener.response(to: StreamSocket(to: listener.path)) == "HTTP/1.1 408")
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
        _ = try StreamSocket(to: try #require(parts.last.flatMap { UInt16($0) }))
        let six: [UInt8] = [10, 0, 0x12, 0xCA, 0, 0, 0, 0] + [UInt8](repeating: 0, count: 15) + [1, 0, 0, 0, 0]
        #expect(ListeningSocket.name(AF_INET6, six) == "[::1]:4810")
        // Cut addresses, and sockets without a name or with a name that is not a path.
        for (family, bytes) in [
            (AF_INET, []), (AF_INET, Array(six.prefix(7))), (AF_INET6, Array(six.prefix(23))), (AF_UNIX, []),
            (AF_UNIX, [1, 0]), (AF_UNIX, [1, 0, 0, 65]),
        ] as [(CInt, [UInt8])] { #expect(ListeningSocket.name(family, bytes) == nil, "\(bytes)") }
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
        ] { #expect(ListeningSocket.passed(environment: environment) == nil, "\(environment)") }
    }
}

@Suite("Attacks on the logout listener", .serialized)
struct LogoutHostileTests {
    /// Keeps as many connections open as permitted, and replaces each connection that the listener closes. Each
    /// connection sends one of the given beginnings of a request.
    private final class Attacker: Sendable {
        /// All eight attackers together stay below the listener's kernel backlog of 1,024. Beyond that the kernel drops
        /// connection attempts, which clients repeat after a second.
        private static let connections = 100

        private static let beginnings = [
            "", "POST /logout HTTP/1.1\r\nContent-", "rubbish\r\n\r\n",
            "POST /logout HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 20\r\n\r\n"
                + "logout_token=rubbish",
            "GET / HTTP/1.1\r\n" + String(repeating: "X: y\r\n", count: 1_500), String(repeating: "x", count: 8_000),
        ]

        private let state = Locked<(made: Int, isOver: Bool)>((0, false))

        var made: Int { state.withLock { $0.made } }

        func attack(_ port: UInt16) {
            var open: [StreamSocket] = []
            while !state.withLock({ $0.isOver }) {
                while open.count < Self.connections, let client = try? StreamSocket() {
                    client.resetWhenClosed()
                    guard (try? client.bind(to: "127.0.0.3")) != nil, (try? client.connect(port)) != nil else { break }
                    let number = state.withLock { state in
                        state.made += 1
                        return state.made
                    }
                    client.send(Self.beginnings[number % Self.beginnings.count])
                    open.append(client)
                }
                open.removeAll { $0.hasNews }
            }
        }

        func stop() { state.withLock { $0.isOver = true } }
    }

    @Test("eight attackers delay a logout from another address by less than a second")
    func flood() async throws {
        var files = rlimit()
        getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &files)
        files.rlim_cur = max(files.rlim_cur, min(files.rlim_max, 4096))
        setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &files)
        let device = try await LogoutDevice(fault: "backchannel-none.hostile")
        let port = device.port
        var tokens: [String] = []
        for _ in 0..<20 { tokens.append(try await device.token()) }
        // The first request makes the process fetch the provider's keys.
        #expect(try await device.post(tokens.removeLast()).hasPrefix("HTTP/1.1 200"))
        let attackers = (0..<8).map { _ in Attacker() }
        defer { for attacker in attackers { attacker.stop() } }
        for attacker in attackers {
            try #require(QuietThread.start("attacker") { attacker.attack(port) } != nil)
        }
        try await eventually("each attacker has all its connections") { attackers.allSatisfy { $0.made > 150 } }
        for token in tokens {
            let (response, time) = try await onThread {
                let start = ContinuousClock.now
                let client = try StreamSocket()
                try client.bind(to: "127.0.0.2")
                try client.connect(port)
                client.send(LogoutDevice.request("logout_token=\(token)"))
                return (client.readToEnd(), ContinuousClock.now - start)
            }
            #expect(response.hasPrefix("HTTP/1.1 200"), "\(response)")
            #expect(time < .seconds(1))
        }
        #expect(device.events.count == 20)
    }
}
