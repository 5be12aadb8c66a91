import DBusTransport
import FoundationEssentials
import Glibc
package import SharedDevice
import Synchronization

/// The pages of a sign-in, served at 127.0.0.1 by one thread, to this user's programs alone: connections of others end at once. Whoever connects gets
/// 5 seconds to ask and 5 to take the answer; at most 16 are served at a time, and the oldest that has not asked yet makes room for another: browsers
/// connect ahead of what they ask.
package final class LoopbackListener: Sendable {
    /// What the prompt says to a visitor.
    private typealias Reply = (visitor: SignInPrompt.Visitor, response: LoopbackResponse)

    private struct Shared {
        var replies: [Reply] = []
        var isClosing = false
    }

    /// Where the pages are.
    package let place: SignInPrompt.Place
    private let shared = Locked(Shared())
    private let wake: Wake
    private let ended: AsyncStream<Void>

    /// The descriptor on the heap, so that thread and object share it.
    private final class Wake: Sendable {
        let event: EventDescriptor
        init() throws(DBusError) { event = try EventDescriptor("serve the page of a sign-in") }
    }

    /// - Parameters:
    ///   - ports: the ports that the provider takes; none: any that is free. If each is in use, another one serves this program's own pages, and
    ///     ``SignInPrompt/Place/problem`` of ``place`` says so.
    ///   - patience: how long a visitor may take to ask, and to take the answer.
    ///   - problem: is called on the listener's thread, once, if nobody can be served.
    ///   - visited: is called on the listener's thread for each request, which waits until ``respond(_:_:)``.
    /// - Throws: ``SharedDeviceError/Code/brokerFailed`` if there is no socket at all.
    package init(
        ports: [UInt16],
        patience: Duration = .seconds(5),
        problem: @escaping @Sendable (String) -> Void = { _ in },
        visited: @escaping @Sendable (SignInPrompt.Visitor, LoopbackRequest) -> Void
    ) throws(SharedDeviceError) {
        let socket: CInt
        let port: UInt16
        var taken: SharedDeviceError?
        do throws(SharedDeviceError) {
            (socket, port) = try Self.bound(to: ports)
        } catch {
            guard error.code == .providerMisconfigured else { throw error }
            // The program's own pages may be at any port.
            taken = error
            (socket, port) = try Self.bound(to: [])
        }
        place = SignInPrompt.Place(port: port, path: Self.unguessablePath(), problem: taken)
        do throws(DBusError) {
            wake = try Wake()
        } catch {
            Glibc.close(socket)
            throw SharedDeviceError(.brokerFailed, attempted: Self.attempted, message: "\(error)")
        }
        let (stream, continuation) = AsyncStream.makeStream(of: Void.self)
        ended = stream
        let (wake, host) = (wake, place.host)
        let started = QuietThread.start("sign-in page") { [weak self] in
            var visits = LoopbackVisits(
                socket: socket,
                host: host,
                patience: patience,
                visited: visited,
                problem: problem
            )
            var isClosing = false
            while !isClosing || visits.hasReplies {
                visits.serve(until: wake.event.descriptor)
                wake.event.clear()
                // Once nobody keeps the listener, nobody is answered any more.
                guard let news = self?.takeNews() else { break }
                for reply in news.replies { visits.reply(to: reply.visitor, reply.response) }
                isClosing = news.isClosing
                if isClosing { visits.stopAccepting() }
            }
            visits.closeAll()
            continuation.finish()
        }
        guard started != nil else {
            let reason = String(cString: strerror(errno))
            Glibc.close(socket)
            throw SharedDeviceError(
                .brokerFailed,
                attempted: Self.attempted,
                message: "there is no thread for the sign-in's pages: \(reason)"
            )
        }
    }

    deinit { wake.event.signal() }

    /// Answers a visitor; one that has gone is not missed.
    package func respond(_ visitor: SignInPrompt.Visitor, _ response: LoopbackResponse) {
        shared.withLock { $0.replies.append((visitor, response)) }
        wake.event.signal()
    }

    /// Takes no visitor from now on, and returns when those that were answered have their answers, or their time is over.
    package func close() async {
        shared.withLock { $0.isClosing = true }
        wake.event.signal()
        for await _ in ended {}
    }

    private func takeNews() -> Shared {
        shared.withLock { shared in
            defer { shared.replies = [] }
            return shared
        }
    }

    // MARK: The socket

    private static let attempted = "serve the page of a sign-in"

    private static func unguessablePath() -> String {
        var random = SystemRandomNumberGenerator()
        let words = (0..<2).map { _ in
            let text = String(random.next() as UInt64, radix: 16)
            return String(repeating: "0", count: 16 - text.count) + text
        }
        return "/" + words.joined()
    }

    private static func bound(to ports: [UInt16]) throws(SharedDeviceError) -> (CInt, UInt16) {
        var reason = ""
        for port in ports.isEmpty ? [0] : ports {
            let socket = Glibc.socket(AF_INET, CInt(SOCK_STREAM.rawValue) | O_CLOEXEC | O_NONBLOCK, 0)
            guard socket >= 0 else {
                throw SharedDeviceError(
                    .brokerFailed,
                    attempted: attempted,
                    message: "there is no socket for the sign-in's pages: \(String(cString: strerror(errno)))"
                )
            }
            // The last sign-in may have used this very port a moment ago.
            var yes: CInt = 1
            setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, socklen_t(MemoryLayout<CInt>.size))
            var address = sockaddr_in()
            address.sin_family = sa_family_t(AF_INET)
            address.sin_port = port.bigEndian
            address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
            var length = socklen_t(MemoryLayout<sockaddr_in>.size)
            let isBound = withUnsafeMutablePointer(to: &address) {
                $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    bind(socket, $0, length) == 0 && listen(socket, 128) == 0 && getsockname(socket, $0, &length) == 0
                }
            }
            if isBound { return (socket, UInt16(bigEndian: address.sin_port)) }
            reason = String(cString: strerror(errno))
            Glibc.close(socket)
        }
        throw SharedDeviceError(
            .providerMisconfigured,
            attempted: attempted,
            message:
                "no port of \(ports.map(String.init).joined(separator: ", ")) is free (\(reason)); end what uses them, "
                + "or name others in oidcLoopbackPorts and register them with the provider"
        )
    }
}
