import CLinux
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
import Testing

@Suite("The user at the other end of a TCP connection")
struct PeerUserTests {
    /// A socket that listens on 127.0.0.1 and accepts one connection at a time.
    private final class Listener {
        let port: UInt16
        private let descriptor: CInt

        init() throws {
            descriptor = socket(AF_INET, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
            var address = sockaddr_in()
            address.sin_family = sa_family_t(AF_INET)
            address.sin_addr.s_addr = inet_addr("127.0.0.1")
            var length = socklen_t(MemoryLayout<sockaddr_in>.size)
            let descriptor = descriptor
            let isListening = withUnsafeMutablePointer(to: &address) { pointer in
                pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    bind(descriptor, $0, length) == 0 && listen(descriptor, 8) == 0
                        && getsockname(descriptor, $0, &length) == 0
                }
            }
            try #require(isListening)
            port = UInt16(bigEndian: address.sin_port)
        }

        deinit { close(descriptor) }

        /// Returns the results of both functions for the next connection: a user, or the negated error number.
        func nextPeer(_ meanwhile: (CInt) async throws -> Void = { _ in }) async throws -> [Int] {
            let connection = accept(descriptor, nil, nil)
            defer { close(connection) }
            try await meanwhile(connection)
            return [CLinux_userOfPeer, CLinux_userOfPeerByList].map { ask in
                var user: uid_t = 0
                return ask(connection, &user) == 0 ? Int(user) : -Int(errno)
            }
        }
    }

    private func client(of port: UInt16, as user: UInt32?) throws -> ChildProcess {
        let script = """
            import socket, sys
            one = socket.create_connection(("127.0.0.1", \(port)), 60)
            print("connected", flush=True)
            sys.stdin.readline()
            one.close()
            print("closed", flush=True)
            sys.stdin.readline()
            """
        guard let user else { return try ChildProcess("/usr/bin/python3", ["-c", script]) }
        return try ChildProcess(as: user, "/usr/bin/python3", ["-c", script])
    }

    @Test("the user is that of the peer's process; a closed connection has none")
    func own() async throws {
        let listener = try Listener()
        // Only root can be several users.
        let users: [UInt32?] = geteuid() == 0 ? [nil, 2] : [nil]
        for user in users {
            let client = try client(of: listener.port, as: user)
            try await client.line { $0 == "connected" }
            let expected = Int(user ?? geteuid())
            #expect(try await listener.nextPeer() == [expected, expected])
        }
        let second = try client(of: listener.port, as: nil)
        try await second.line { $0 == "connected" }
        let answers = try await listener.nextPeer { _ in
            try second.write("close")
            try await second.line { $0 == "closed" }
        }
        let nobody = -Int(ENOENT)
        #expect(answers == [nobody, nobody])
    }

    @Test("a socket that is not an IPv4 connection has no user")
    func none() throws {
        var ends: [CInt] = [-1, -1]
        #expect(socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0, &ends) == 0)
        defer { for end in ends { close(end) } }
        var user: uid_t = 0
        for ask in [CLinux_userOfPeer, CLinux_userOfPeerByList] {
            #expect(ask(ends[0], &user) != 0)
            #expect(ask(-1, &user) != 0)
        }
    }
}
