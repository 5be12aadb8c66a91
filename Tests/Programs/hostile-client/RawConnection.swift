import Glibc

/// A connection of a hostile process: a socket that can send bytes that are not D-Bus messages. Used by one thread at a
/// time.
final class RawConnection {
    let descriptor: CInt
    private var serial: UInt32 = 0
    private var received: [UInt8] = []
    private(set) var name = ""

    /// Connects, and authenticates as this user.
    ///
    /// - Parameter isSilent: Whether to stop before authentication, so that the bus waits.
    /// - Returns: `nil` if the bus hangs up because of its limits.
    init?(_ address: String, isSilent: Bool = false) {
        descriptor = connectedSocket(address)
        guard descriptor >= 0 else { return nil }
        if isSilent { return }
        guard write(greeting(of: getuid())), let answer = line(), answer.hasPrefix("OK"),
            write(Array("BEGIN\r\n".utf8)), let hello = call(BusDriver.call("Hello")), hello.kind == 2
        else { return nil }
        name = hello.text
    }

    deinit { close(descriptor) }

    // MARK: Sending

    /// Returns whether the bus still accepts bytes.
    func write(_ bytes: [UInt8]) -> Bool {
        var sent = 0
        while sent < bytes.count {
            let count = bytes[sent...].withUnsafeBytes {
                Glibc.send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL))
            }
            if count > 0 {
                sent += count
            } else if errno != EINTR {
                return false
            }
        }
        return true
    }

    /// Returns the serial number; `nil` if the bus has hung up.
    @discardableResult
    func send(_ message: WireMessage) -> UInt32? {
        serial += 1
        return write(message.bytes(serial: serial)) ? serial : nil
    }

    /// Sends a message many times in few writes. Only the serial numbers differ.
    func send(_ message: WireMessage, times: Int) -> Bool {
        var bytes: [UInt8] = []
        for _ in 0..<times {
            serial += 1
            bytes += message.bytes(serial: serial)
        }
        return write(bytes)
    }

    // MARK: Receiving

    /// Returns the reply; `nil` if the bus has hung up or no reply comes in time. Discards other messages.
    func call(_ message: WireMessage, seconds: Double = 60) -> ReceivedMessage? {
        guard let serial = send(message) else { return nil }
        let deadline = now() + seconds
        while let message = receive(until: deadline) {
            if message.answers == serial { return message }
        }
        return nil
    }

    /// Returns the next message; `nil` if the bus has hung up or no message comes in time.
    func receive(until deadline: Double) -> ReceivedMessage? {
        while true {
            if let message = takeMessage() { return message }
            guard read(until: deadline) else { return nil }
        }
    }

    /// Discards the bytes that have arrived.
    func drain() {
        received = []
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while recv(descriptor, &buffer, buffer.count, Int32(MSG_DONTWAIT)) > 0 {}
    }

    /// Discards the messages that have arrived, but answers pings, so that this process seems to read.
    func answerPings() {
        while read(until: now()) {}
        while let message = takeMessage() {
            guard message.member == "Ping", let sender = message.sender else { continue }
            send(WireMessage(kind: .answer, destination: sender, answers: message.serial))
        }
    }

    private func takeMessage() -> ReceivedMessage? {
        guard received.count >= 16 else { return nil }
        let fields = Int(ReceivedMessage.number(received, at: 12))
        let size = ((16 + fields + 7) & ~7) + Int(ReceivedMessage.number(received, at: 4))
        guard received.count >= size else { return nil }
        defer { received.removeFirst(size) }
        return ReceivedMessage(Array(received[..<size]))
    }

    private func read(until deadline: Double) -> Bool {
        var waiting = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        guard poll(&waiting, 1, CInt(max(0, (deadline - now()) * 1000))) > 0 else { return false }
        var buffer = [UInt8](repeating: 0, count: 65_536)
        let count = recv(descriptor, &buffer, buffer.count, 0)
        guard count > 0 else { return false }
        received += buffer[..<count]
        return true
    }

    private func line() -> String? {
        let deadline = now() + 10
        while !received.contains(UInt8(ascii: "\n")) {
            guard read(until: deadline) else { return nil }
        }
        let end = received.firstIndex(of: UInt8(ascii: "\n")).map { $0 + 1 } ?? received.count
        defer { received.removeFirst(end) }
        return String(decoding: received[..<end], as: UTF8.self)
    }
}

/// Returns a socket that is connected to the bus; -1 with `errno` set if the bus refuses it.
func connectedSocket(_ address: String) -> CInt {
    let descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
    var target = sockaddr_un()
    target.sun_family = sa_family_t(AF_UNIX)
    let path = address.dropFirst("unix:path=".count).prefix { $0 != "," }
    withUnsafeMutableBytes(of: &target.sun_path) { $0.copyBytes(from: Array(path.utf8)) }
    let status = withUnsafePointer(to: &target) { target in
        target.withMemoryRebound(to: sockaddr.self, capacity: 1) {
            Glibc.connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
        }
    }
    if status == 0 { return descriptor }
    close(descriptor)
    return -1
}

/// The first line that a client of this user sends.
func greeting(of user: uid_t) -> [UInt8] {
    Array("\0AUTH EXTERNAL \("\(user)".utf8.map { String($0, radix: 16) }.joined())\r\n".utf8)
}

/// Seconds of the monotonic clock.
func now() -> Double {
    var time = timespec()
    clock_gettime(CLOCK_MONOTONIC, &time)
    return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
}
