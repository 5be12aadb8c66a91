import DeviceConfiguration
import Glibc
@_spi(Extensions) import SharedDevice

/// The directories that a program expects.
package enum ProgramDirectories {
    /// Creates the missing directories, with access for the user of this process only.
    ///
    /// - Parameter paths: the first contains the others, and the error's remedy names it.
    package static func make(_ paths: [String]) throws(AdapterFailure) {
        for path in paths {
            do {
                try makePrivateDirectory(path)
            } catch {
                let user = (try? SystemUser(number: geteuid()))?.name ?? "\(geteuid())"
                let first = paths.first ?? path
                let code = error.code
                let isForbidden = [EACCES, EPERM, ENOENT].contains(code)
                throw AdapterFailure(
                    "make",
                    "\(path) as \(user)",
                    String(cString: strerror(code)),
                    remedy: isForbidden
                        ? "\(path == first ? "Make it" : "Give \(first) to \(user)"): install -d -m 700 -o \(user) \(first)"
                        : "See what is at this path, and which file system it is on"
                )
            }
        }
    }
}
