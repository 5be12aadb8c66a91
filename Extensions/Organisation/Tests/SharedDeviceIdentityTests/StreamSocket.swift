import Glibc
import HTTPListening
@_spi(Extensions) import NotifyCenterTestKit
import TestProviders

/// Sends a text to a port of 127.0.0.1, and returns the whole response.
func exchange(_ text: String, port: UInt16) async throws -> String {
    try await onThread {
        let client = try StreamSocket(to: port)
        client.send(text)
        return client.readToEnd()
    }
}

/// A client's socket.
final class StreamSocket: Sendable {
    private let descriptor: CInt

    init(_ family: CInt = AF_INET) throws {
        descriptor = socket(family, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { throw NoAddress() }
        var patience = timeval(tv_sec: 60, tv_usec: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &patience, socklen_t(MemoryLayout<timeval>.size))
    }

    /// Connects to a port of the loopback network.
    convenience init(to port: UInt16, _ host: String = "127.0.0.1") throws {
        try self.init()
        try connect(port, host)
    }

    /// Connects to a path.
    convenience init(to path: String) throws {
        try self.init(AF_UNIX)
        try connect(to: path)
    }

    deinit { close(descriptor) }

    func connect(_ port: UInt16, _ host: String = "127.0.0.1") throws {
        try use(Self.loopback(port, host)) { Glibc.connect($0, $1, $2) }
    }

    func connect(to path: String) throws {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8.prefix($0.count - 1)) }
        try use(address) { Glibc.connect($0, $1, $2) }
    }

    /// Connects from this address of the loopback network.
    func bind(to host: String) throws { try use(Self.loopback(0, host)) { Glibc.bind($0, $1, $2) } }

    private static func loopback(_ port: UInt16, _ host: String) -> sockaddr_in {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = inet_addr(host)
        address.sin_port = port.bigEndian
        return address
    }

    private func use<Address>(
        _ address: Address,
        _ call: (CInt, UnsafePointer<sockaddr>, socklen_t) -> CInt
    ) throws {
        let code = withUnsafePointer(to: address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                call(descriptor, $0, socklen_t(MemoryLayout<Address>.size))
            }
        }
        guard code == 0 else { throw NoAddress() }
    }

    /// Makes the kernel reset the connection when it is closed, so that its port is free at once.
    func resetWhenClosed() {
        var abort = linger(l_onoff: 1, l_linger: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &abort, socklen_t(MemoryLayout<linger>.size))
    }

    /// Whether the peer has responded or hung up.
    var hasNews: Bool {
        var look = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        return poll(&look, 1, 0) != 0
    }

    func shut() { shutdown(descriptor, CInt(SHUT_RDWR)) }

    func endOutput() { shutdown(descriptor, CInt(SHUT_WR)) }

    func send(_ text: String) {
        _ = Array(text.utf8).withUnsafeBytes { Glibc.send(descriptor, $0.baseAddress, $0.count, CInt(MSG_NOSIGNAL)) }
    }

    func readToEnd() -> String {
        var bytes: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 4096)
        while true {
            let count = recv(descriptor, &chunk, chunk.count, 0)
            guard count > 0 else { return String(decoding: bytes, as: UTF8.self) }
            bytes += chunk[..<count]
        }
    }
}

/// A port of 127.0.0.1 that accepts connections and never responds.
final class SilentServer: Sendable {
    let port: UInt16
    private let descriptor: CInt

    init() throws {
        descriptor = try ListeningSocket.open(address: "127.0.0.1", port: 0)
        let name = ListeningSocket.name(of: descriptor) ?? ""
        guard let port = UInt16(name.drop { $0 != ":" }.dropFirst()) else { throw NoAddress() }
        self.port = port
    }

    deinit { close(descriptor) }

    /// Frees the port.
    func stop() { shutdown(descriptor, CInt(SHUT_RDWR)) }
}
