import Basics
import DBus
import Glibc
import NotifyCenterTestKit
import Synchronization
import TestProviders
import Testing

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
        let fault = "backchannel-none.hostile"
        let device = try await LogoutDevice(fault: fault)
        let port = device.port
        var tokens: [String] = []
        for _ in 0..<20 {
            tokens.append(try await FaultyProvider.shared.value.client(fault).page("logout-token"))
        }
        // The first request makes the process fetch the provider's keys.
        #expect(try await device.post("logout_token=\(tokens.removeLast())").hasPrefix("HTTP/1.1 200"))
        let attackers = (0..<8).map { _ in Attacker() }
        defer { for attacker in attackers { attacker.stop() } }
        for attacker in attackers {
            try #require(QuietThread.start("attacker") { attacker.attack(port) } != nil)
        }
        try await eventually("each attacker has all its connections") { attackers.allSatisfy { $0.made > 150 } }
        for token in tokens {
            let (response, time) = try await aside {
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
        #expect(device.events.withLock { $0.count } == 20)
    }
}
