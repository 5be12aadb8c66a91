import Basics
import DBus
import FoundationEssentials
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Synchronization
import TestProviders

/// A device that listens for logouts, and a broker that records the events that it receives.
final class LogoutDevice: Sendable {
    let device: IdentityDevice
    /// The port on 127.0.0.1.
    let port: UInt16
    let events = Locked<[[String: String]]>([])
    let refuses = Locked(false)
    private let object = Locked<Observation?>(nil)

    /// - Parameters:
    ///   - port: the port to listen on; by default a free one.
    ///   - address: the address to listen on instead.
    ///   - passed: the path of a socket that the device inherits from its parent process.
    init(fault: String, port: UInt16? = nil, at address: String? = nil, passed: String? = nil) async throws {
        self.port = try port ?? freePort()
        let key = Self.key(address ?? "127.0.0.1:\(self.port)")
        device = try await IdentityDevice(fault: fault, more: key, passed: passed)
        let token = try device.broker.export(
            [
                DBusInterface(
                    BrokerProtocol.interface,
                    methods: [
                        .init("ReportProviderEvents", in: [.init("request", "a{sv}")], out: [.init("answer", "a{sv}")])
                        {
                            [weak self] call in
                            guard let self, !refuses.withLock({ $0 }) else {
                                throw MethodFailure(name: "org.example.No", message: "no")
                            }
                            let told = call.arguments.first?.fieldsValue?["events"]?.elementsValue ?? []
                            events.withLock { events in
                                events += told.map { ($0.fieldsValue ?? [:]).compactMapValues(\.stringValue) }
                            }
                            return [.fields([:])]
                        }
                    ]
                )
            ],
            at: BrokerProtocol.path
        )
        object.withLock { $0 = token }
    }

    private static func key(_ address: String) -> String { #", "backChannelLogout": "\#(address)""# }

    func listen(at address: String, fault: String) async throws {
        let faulty = try await FaultyProvider.shared.value
        try device.configure(issuer: faulty.issuer(fault), trustAnchors: faulty.trustAnchors, more: Self.key(address))
    }

    static func request(_ body: String, type: String = "application/x-www-form-urlencoded") -> String {
        "POST /logout HTTP/1.1\r\nContent-Type: \(type)\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)"
    }

    func post(
        _ body: String,
        type: String = "application/x-www-form-urlencoded",
        to path: String? = nil
    ) async throws -> String {
        let text = Self.request(body, type: type)
        guard let path else { return try await send(text) }
        return try await aside {
            let client = try StreamSocket(AF_UNIX)
            try client.connect(to: path)
            client.send(text)
            return client.readToEnd()
        }
    }

    func send(_ text: String) async throws -> String {
        let port = port
        return try await aside { try exchange(text, port: port) }
    }
}

/// Runs a blocking function on a separate thread, because the other tests and this test's broker need the threads of
/// Swift's pool.
func aside<Value: Sendable>(_ body: @escaping @Sendable () throws -> Value) async throws -> Value {
    try await withCheckedThrowingContinuation { continuation in
        let thread = QuietThread.start("aside") { continuation.resume(with: Result { try body() }) }
        if thread == nil { continuation.resume(throwing: NoAddress()) }
    }
}

func exchange(_ text: String, port: UInt16) throws -> String {
    let client = try StreamSocket()
    try client.connect(port)
    client.send(text)
    return client.readToEnd()
}

final class StreamSocket: Sendable {
    private let descriptor: CInt

    init(_ family: CInt = AF_INET) throws {
        descriptor = socket(family, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { throw NoAddress() }
        var patience = timeval(tv_sec: 60, tv_usec: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &patience, socklen_t(MemoryLayout<timeval>.size))
    }

    deinit { close(descriptor) }

    private static func loopback(_ port: UInt16, _ host: String = "127.0.0.1") -> sockaddr_in {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = inet_addr(host)
        address.sin_port = port.bigEndian
        return address
    }

    func bindToAnyPort() throws -> UInt16 {
        let descriptor = descriptor
        var address = Self.loopback(0)
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let isBound = withUnsafeMutablePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                Glibc.bind(descriptor, $0, length) == 0 && getsockname(descriptor, $0, &length) == 0
            }
        }
        guard isBound else { throw NoAddress() }
        return UInt16(bigEndian: address.sin_port)
    }

    /// Connects from this address of the loopback network.
    func bind(to host: String) throws {
        let descriptor = descriptor
        var address = Self.loopback(0, host)
        let isBound = withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                Glibc.bind(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size)) == 0
            }
        }
        guard isBound else { throw NoAddress() }
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

    /// From now on no other socket can listen at this address.
    func listen() throws {
        guard Glibc.listen(descriptor, 1) == 0 else { throw NoAddress() }
    }

    func shut() { shutdown(descriptor, CInt(SHUT_RDWR)) }

    func endOutput() { shutdown(descriptor, CInt(SHUT_WR)) }

    func connect(to path: String) throws {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8.prefix($0.count - 1)) }
        let descriptor = descriptor
        let isConnected = withUnsafePointer(to: address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                Glibc.connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size)) == 0
            }
        }
        guard isConnected else { throw NoAddress() }
    }

    func connect(_ port: UInt16, _ host: String = "127.0.0.1") throws {
        let descriptor = descriptor
        var address = Self.loopback(port, host)
        let isConnected = withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                Glibc.connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size)) == 0
            }
        }
        guard isConnected else { throw NoAddress() }
    }

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
