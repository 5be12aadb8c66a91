import Basics
import FoundationEssentials
import Glibc
import Identity

/// The secrets with which this device authenticates to the provider. They are systemd credentials (systemd.exec(5),
/// “Credentials”), so they are in no ordinary file, no argument and no environment variable.
enum ServiceCredential: String {
    /// The client's secret, by which the provider recognises this device.
    case clientSecret = "oidc-client-secret"
    /// The token for the provider's event stream, if an administrator has one.
    case signalsToken = "shared-signals-token"

    private static let longest = 4096

    /// - Parameter environment: The environment of this process: `CREDENTIALS_DIRECTORY` names the directory.
    /// - Returns: `nil` if there is no such credential.
    func read(environment: [String: String]) throws(Problem) -> Secret? {
        guard let directory = environment["CREDENTIALS_DIRECTORY"] else { return nil }
        let (path, longest) = (directory + "/" + rawValue, Self.longest)
        let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
        guard descriptor >= 0 else {
            guard errno != ENOENT else { return nil }
            throw Problem("\(path) cannot be read: \(String(cString: strerror(errno)))")
        }
        defer { close(descriptor) }
        var bytes = [UInt8](repeating: 0, count: longest + 2)
        defer { bytes.withUnsafeMutableBytes { bytes in bytes.baseAddress.map { explicit_bzero($0, bytes.count) } } }
        var count = 0
        while count < bytes.count {
            let more = bytes[count...].withUnsafeMutableBytes { Glibc.read(descriptor, $0.baseAddress, $0.count) }
            if more == 0 { break }
            guard more > 0 || errno == EINTR else {
                throw Problem("\(path) cannot be read: \(String(cString: strerror(errno)))")
            }
            count += max(0, more)
        }
        // A file written with `echo` ends with a line break.
        if count > 0, bytes[count - 1] == UInt8(ascii: "\n") { count -= 1 }
        guard (1...longest).contains(count), !bytes[..<count].contains(0) else {
            throw Problem("\(path) has to have 1 to \(longest) bytes, none of them zero")
        }
        return Secret(bytes: bytes[..<count])
    }
}
