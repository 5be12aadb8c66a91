import Foundation
import Glibc
import Testing

/// A display server's end of one connection, for responses that no real server gives.
///
/// It serves on a thread of its own, until its peer disconnects.
final class StandInDisplay: Sendable {
    /// The stream of bytes of the accepted connection.
    struct Peer {
        let descriptor: CInt

        /// Returns the next `count` bytes; fewer if the peer has disconnected.
        func receive(_ count: Int) -> [UInt8] {
            // Linux waits for data even if none is asked for.
            guard count > 0 else { return [] }
            return [UInt8](unsafeUninitializedCapacity: count) { buffer, filled in
                filled = max(0, recv(descriptor, buffer.baseAddress, count, CInt(MSG_WAITALL)))
            }
        }

        func send(_ bytes: [UInt8]) { _ = Glibc.send(descriptor, bytes, bytes.count, CInt(MSG_NOSIGNAL)) }
    }

    private let listener: CInt

    private init(_ family: CInt, bind: (CInt) -> CInt, serve: @escaping @Sendable (Peer) -> Void) throws {
        listener = socket(family, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        try #require(listener >= 0 && bind(listener) == 0 && listen(listener, 1) == 0)
        Thread.detachNewThread { [listener] in
            let peer = Peer(descriptor: accept(listener, nil, nil))
            guard peer.descriptor >= 0 else { return }
            serve(peer)
            while !peer.receive(1).isEmpty {}
            close(peer.descriptor)
        }
    }

    deinit {
        shutdown(listener, CInt(SHUT_RDWR))
        close(listener)
    }

    /// Serves a Wayland compositor without any interface at a path.
    static func compositor(at path: String) throws -> StandInDisplay {
        try StandInDisplay(AF_UNIX) { descriptor in
            var address = sockaddr_un()
            address.sun_family = sa_family_t(AF_UNIX)
            withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
            return withUnsafePointer(to: &address) {
                $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    bind(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
                }
            }
        } serve: { peer in
            // wl_display.get_registry and wl_display.sync, whose last word is the callback's number.
            let requests = peer.receive(24)
            // The event wl_callback.done, of 12 bytes.
            peer.send(requests.suffix(4) + [0, 0, 12, 0] + [1, 0, 0, 0])
        }
    }
}
