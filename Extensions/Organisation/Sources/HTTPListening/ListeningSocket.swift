import FoundationEssentials
import Glibc

package enum ListeningSocket {
    package struct Failure: Error, CustomStringConvertible {
        /// The cause, without the address.
        package let reason: String
        package let description: String
    }

    /// The socket that the service manager has passed (sd_listen_fds(3)); `nil` if it has passed none, or if the socket
    /// does not listen.
    package static func passed(environment: [String: String]) -> CInt? {
        guard environment["LISTEN_PID"] == "\(getpid())", let count = environment["LISTEN_FDS"].flatMap(Int.init),
            count > 0
        else { return nil }
        // SD_LISTEN_FDS_START (sd_listen_fds(3)).
        let first: CInt = 3
        var (listens, length): (CInt, socklen_t) = (0, socklen_t(MemoryLayout<CInt>.size))
        guard getsockopt(first, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0, listens != 0 else { return nil }
        // Child processes do not need it.
        _ = fcntl(first, F_SETFD, FD_CLOEXEC)
        return first
    }

    /// Duplicates a passed socket, for one listener.
    package static func duplicate(_ passed: CInt) throws(Failure) -> CInt {
        let descriptor = fcntl(passed, F_DUPFD_CLOEXEC, 0)
        guard descriptor >= 0 else {
            let reason = String(cString: strerror(errno))
            throw Failure(reason: reason, description: "cannot listen at the socket that was passed: \(reason)")
        }
        return descriptor
    }

    /// The address of a listening socket, in the form of `backChannelLogout`: `ADDRESS:PORT`, or a path; `nil` if it
    /// has neither.
    package static func name(of descriptor: CInt) -> String? {
        var (storage, length) = (sockaddr_storage(), socklen_t(MemoryLayout<sockaddr_storage>.size))
        let isNamed = withUnsafeMutablePointer(to: &storage) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { getsockname(descriptor, $0, &length) == 0 }
        }
        guard isNamed else { return nil }
        return name(CInt(storage.ss_family), withUnsafeBytes(of: storage) { Array($0.prefix(Int(length))) })
    }

    /// - Parameter bytes: A socket address of this family: ip(7), ipv6(7), unix(7).
    static func name(_ family: CInt, _ bytes: [UInt8]) -> String? {
        switch family {
        case AF_INET where bytes.count >= 8:
            return bytes[4..<8].map { "\($0)" }.joined(separator: ".") + ":\(Int(bytes[2]) << 8 | Int(bytes[3]))"
        case AF_INET6 where bytes.count >= 24:
            var text = [CChar](repeating: 0, count: Int(INET6_ADDRSTRLEN))
            guard inet_ntop(AF_INET6, Array(bytes[8..<24]), &text, socklen_t(text.count)) != nil else { return nil }
            let address = String(decoding: text.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
            return "[\(address)]:\(Int(bytes[2]) << 8 | Int(bytes[3]))"
        case AF_UNIX:
            let path = bytes.dropFirst(2).prefix { $0 != 0 }
            return path.isEmpty ? nil : String(decoding: path, as: UTF8.self)
        default: return nil
        }
    }

    /// Listens at a numeric address.
    package static func open(address: String, port: UInt16) throws(Failure) -> CInt {
        var four = sockaddr_in()
        four.sin_family = sa_family_t(AF_INET)
        four.sin_port = port.bigEndian
        if inet_pton(AF_INET, address, &four.sin_addr) == 1 { return try open(four, AF_INET, "\(address):\(port)") }
        var six = sockaddr_in6()
        six.sin6_family = sa_family_t(AF_INET6)
        six.sin6_port = port.bigEndian
        guard inet_pton(AF_INET6, address, &six.sin6_addr) == 1 else {
            throw Failure(reason: "no address", description: "\(address) is no address")
        }
        return try open(six, AF_INET6, "[\(address)]:\(port)")
    }

    /// Listens at a path. Removes the socket of an earlier run.
    package static func open(path: String) throws(Failure) -> CInt {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        let bytes = Array(path.utf8)
        guard bytes.count < MemoryLayout.size(ofValue: address.sun_path) else {
            throw Failure(reason: "too long", description: "\(path) is too long for a socket")
        }
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: bytes) }
        var information = stat()
        if lstat(path, &information) == 0, information.st_mode & S_IFMT == S_IFSOCK { unlink(path) }
        return try open(address, AF_UNIX, path)
    }

    private static func open<Address>(_ address: Address, _ family: CInt, _ name: String) throws(Failure) -> CInt {
        let descriptor = socket(family, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        var yes: CInt = 1
        setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, socklen_t(MemoryLayout<CInt>.size))
        let isListening = withUnsafePointer(to: address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(descriptor, $0, socklen_t(MemoryLayout<Address>.size)) == 0 && listen(descriptor, 1024) == 0
            }
        }
        guard descriptor >= 0, isListening else {
            let reason = String(cString: strerror(errno))
            if descriptor >= 0 { close(descriptor) }
            throw Failure(reason: reason, description: "no socket can listen at \(name): \(reason)")
        }
        return descriptor
    }
}
