import Basics
import CLinux
import DBus
import FoundationEssentials
import Glibc
package import HTTPListening
package import SharedDevice
import Synchronization

/// Serves the pages of a sign-in at 127.0.0.1 to programs of this user. Closes connections of other users at once.
package final class LoopbackListener: Sendable {
    /// The requests in flight, by the visitor's number.
    private final class Visitors: Sendable {
        private let waiting = Locked<(last: UInt64, answers: [UInt64: AsyncStream<ListenerResponse>.Continuation])>(
            (0, [:])
        )

        func add(_ answer: AsyncStream<ListenerResponse>.Continuation) -> SignInPrompt.Visitor {
            waiting.withLock { waiting in
                waiting.last += 1
                waiting.answers[waiting.last] = answer
                return SignInPrompt.Visitor(waiting.last)
            }
        }

        func remove(_ visitor: SignInPrompt.Visitor) -> AsyncStream<ListenerResponse>.Continuation? {
            waiting.withLock { $0.answers.removeValue(forKey: visitor.number) }
        }
    }

    package let place: SignInPrompt.Place
    private let visitors = Visitors()
    private let listener: HTTPListener

    /// - Parameters:
    ///   - ports: the ports that the provider accepts; none means any free port. If each is in use, another port serves
    ///     this program's own pages, and ``SignInPrompt/Place/problem`` of ``place`` says so.
    ///   - problem: called on the listener's thread, once for each cause, if visitors must wait or cannot be served.
    ///   - visited: called for each request, which waits until ``respond(_:_:)``.
    /// - Throws: ``SharedDeviceError/Code/brokerFailed`` if no socket can be opened.
    package init(
        ports: [UInt16],
        problem: @escaping @Sendable (String) -> Void = { _ in },
        visited: @escaping @Sendable (SignInPrompt.Visitor, LoopbackRequest) -> Void
    ) throws(SharedDeviceError) {
        let (socket, port, taken) = try Self.bound(to: ports)
        place = SignInPrompt.Place(port: port, path: Self.unguessablePath(), problem: taken)
        var options = Self.options(problem)
        // The user's time limit bounds the response.
        options.handling = nil
        let (visitors, host) = (visitors, place.host)
        do throws(DBusError) {
            listener = try HTTPListener(adopting: socket, options: options) { received in
                do throws(LoopbackRequest.Refusal) {
                    let request = try LoopbackRequest(received, host: host)
                    let (answers, answer) = AsyncStream.makeStream(of: ListenerResponse.self)
                    let visitor = visitors.add(answer)
                    defer { _ = visitors.remove(visitor) }
                    visited(visitor, request)
                    return await answers.first { _ in true }
                } catch {
                    return ListenerResponse.refusal(error.status)
                }
            }
        } catch {
            throw SharedDeviceError(.brokerFailed, attempted: Self.attempted, message: "\(error)")
        }
    }

    /// Sends the response to a visitor; does nothing if the visitor has disconnected.
    package func respond(_ visitor: SignInPrompt.Visitor, _ response: ListenerResponse) {
        visitors.remove(visitor)?.yield(response)
    }

    /// Stops accepting visitors, and returns when the pending responses are sent or timed out.
    package func close() async { await listener.close() }

    // MARK: Permitted clients

    private final class Flag: Sendable { let value = Locked(false) }

    /// All users of the machine can reach 127.0.0.1, but the browser runs as this user.
    private static func options(_ problem: @escaping @Sendable (String) -> Void) -> HTTPListener.Options {
        let hasTold = Flag()
        var options = HTTPListener.Options()
        options.permits = { descriptor in
            var user: uid_t = 0
            if CLinux_userOfPeer(descriptor, &user) == 0 { return user == geteuid() }
            // A socket that was closed at once no longer has a user.
            guard errno != ENOENT, errno != ENOTCONN else { return false }
            let reason = String(cString: strerror(errno))
            let isFirst = hasTold.value.withLock { hasTold in
                defer { hasTold = true }
                return !hasTold
            }
            if isFirst {
                let flaw = "the kernel does not say which user requests it (\(reason))"
                problem("the page cannot be shown, because \(flaw); use --method device-code in a terminal")
            }
            return false
        }
        options.lacksDescriptors = { reason in
            problem("the page waits until this program may open more files (\(reason)); close other programs")
        }
        return options
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

    /// - Returns: a socket at the first free port of the list; otherwise at any port, with the reason.
    private static func bound(
        to ports: [UInt16]
    ) throws(SharedDeviceError) -> (socket: CInt, port: UInt16, problem: SharedDeviceError?) {
        var reason = ""
        for port in ports + [0] {
            do throws(ListeningSocket.Failure) {
                let socket = try ListeningSocket.open(address: "127.0.0.1", port: port)
                let taken = port == 0 && !ports.isEmpty ? error(ports, reason) : nil
                let number = ListeningSocket.name(of: socket)?.split(separator: ":").last.flatMap { UInt16($0) }
                return (socket, number ?? port, taken)
            } catch {
                reason = error.reason
            }
        }
        throw SharedDeviceError(
            .brokerFailed,
            attempted: attempted,
            message: "there is no socket for the sign-in's pages: \(reason)"
        )
    }

    private static func error(_ ports: [UInt16], _ reason: String) -> SharedDeviceError {
        SharedDeviceError(
            .providerMisconfigured,
            attempted: attempted,
            message:
                "no port of \(ports.map(String.init).joined(separator: ", ")) is free (\(reason)); end the programs that use them, "
                + "or name others in oidcLoopbackPorts and register them with the provider"
        )
    }
}
