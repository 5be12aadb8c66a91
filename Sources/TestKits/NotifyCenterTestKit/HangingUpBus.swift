import Basics
public import DBus
import Glibc
import NotifyCenter
import Synchronization

/// A bus that accepts connections, responds to Hello, and then hangs up. With `answersHello: false` it does not respond
/// to Hello. It records the time of each connection.
@_spi(Extensions) public final class HangingUpBus: Sendable {
    @_spi(Extensions) public let bus: Bus
    private let directory: TemporaryDirectory
    private let listener: CInt
    private final class Arrivals: Sendable {
        let times = Locked<[ContinuousClock.Instant]>([])
        /// The connections whose Hello has no response.
        let unanswered = Locked<[CInt]>([])
    }
    private let arrivals = Arrivals()
    private let isListening = Locked(true)

    @_spi(Extensions) public var connections: [ContinuousClock.Instant] { arrivals.times.withLock { $0 } }

    @_spi(Extensions) public var greetings: Int { arrivals.unanswered.withLock { $0.count } }

    /// Disconnects the connections whose Hello has no response.
    @_spi(Extensions) public func hangUp() {
        // Under the lock, because the thread closes a connection after removing it from the list.
        arrivals.unanswered.withLock { for client in $0 { shutdown(client, CInt(SHUT_RDWR)) } }
    }

    /// - Parameter stopped: a stopped bus whose address this one takes over; `nil` means a new address.
    @_spi(Extensions) public init(inPlaceOf stopped: PrivateBus? = nil, answersHello: Bool = true) throws {
        let directory = try TemporaryDirectory("hanging-up-bus")
        let own = "unix:path=\(directory.path)/bus"
        self.directory = directory
        bus = stopped?.bus ?? .address(own)
        let path = String((stopped?.address ?? own).dropFirst("unix:path=".count))
        // A killed bus leaves its socket behind.
        unlink(path)
        listener = socket(AF_UNIX, CInt(SOCK_STREAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: Array(path.utf8)) }
        let listens = withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(listener, $0, socklen_t(MemoryLayout<sockaddr_un>.size)) == 0 && listen(listener, 16) == 0
            }
        }
        guard listens else {
            throw ChildProcess.Failure("cannot listen at \(path): \(String(cString: strerror(errno)))")
        }
        _ = QuietThread.start("hanging up") { [listener, arrivals] in
            while true {
                let client = accept(listener, nil, nil)
                guard client >= 0 else {
                    // `stop` was called.
                    if errno == EINVAL { break }
                    usleep(1000)
                    continue
                }
                arrivals.times.withLock { $0.append(.now) }
                Self.serve(client) { serial in
                    if answersHello { return Self.answerHello(client, serial: serial) }
                    arrivals.unanswered.withLock { $0.append(client) }
                    var byte: UInt8 = 0
                    while read(client, &byte, 1) > 0 {}
                }
                arrivals.unanswered.withLock { $0.removeAll { $0 == client } }
                close(client)
            }
            close(listener)
        }
    }

    deinit { stop() }

    @_spi(Extensions) public func stop() {
        isListening.withLock { isListening in
            // The thread then closes the socket, and its descriptor may be reused, so shut it down only once.
            if isListening { shutdown(listener, CInt(SHUT_RDWR)) }
            isListening = false
        }
    }

    private static func serve(_ client: CInt, _ greet: (UInt8) -> Void) {
        // The client sends a NUL and AUTH, maybe NEGOTIATE_UNIX_FD, then BEGIN followed directly by the call of Hello.
        var received: [UInt8] = []
        var isAuthenticated = false
        while true {
            var buffer = [UInt8](repeating: 0, count: 4096)
            let count = read(client, &buffer, buffer.count)
            guard count > 0 else { return }
            received += buffer[..<count]
            while !isAuthenticated, let end = received.firstIndex(of: UInt8(ascii: "\n")) {
                let line = String(decoding: received[..<end], as: UTF8.self)
                received.removeSubrange(...end)
                if line.contains("AUTH EXTERNAL") { say(client, "OK 1234567890abcdef1234567890abcdef\r\n") }
                if line.contains("NEGOTIATE") { say(client, "ERROR\r\n") }
                isAuthenticated = line.hasPrefix("BEGIN")
            }
            if isAuthenticated, received.count >= 128 { return greet(received[8]) }
        }
    }

    /// Sends a method return whose body is the unique name, in the format of the D-Bus specification.
    private static func answerHello(_ client: CInt, serial: UInt8) {
        func string(_ text: String) -> [UInt8] { [UInt8(text.utf8.count), 0, 0, 0] + Array(text.utf8) + [0] }
        func pad(_ bytes: inout [UInt8]) { while !bytes.count.isMultiple(of: 8) { bytes.append(0) } }
        var fields: [UInt8] = [5, 1, UInt8(ascii: "u"), 0, serial, 0, 0, 0]
        fields += [8, 1, UInt8(ascii: "g"), 0, 1, UInt8(ascii: "s"), 0]
        pad(&fields)
        fields += [7, 1, UInt8(ascii: "s"), 0] + string("org.freedesktop.DBus")
        let body = string(":1.1")
        var message: [UInt8] = [UInt8(ascii: "l"), 2, 1, 1, UInt8(body.count), 0, 0, 0, 1, 0, 0, 0]
        message += [UInt8(fields.count), 0, 0, 0] + fields
        pad(&message)
        say(client, message + body)
    }

    private static func say(_ client: CInt, _ text: String) { say(client, Array(text.utf8)) }
    private static func say(_ client: CInt, _ bytes: [UInt8]) {
        _ = send(client, bytes, bytes.count, CInt(MSG_NOSIGNAL))
    }
}
