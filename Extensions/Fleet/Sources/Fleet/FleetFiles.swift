import Basics
import Glibc

/// Reads small files. Blocks the thread on the file system.
package enum FleetFiles {
    /// The content; `nil` if there is no such file. Throws if the file is unreadable or too large.
    package static func read(_ path: String, atMost limit: Int) throws(FleetRefusal) -> [UInt8]? {
        do throws(FileReadError) {
            return try ReadableFile(path).content(atMost: limit)
        } catch {
            switch error {
            case .system(ENOENT): return nil
            case .system(let code): throw failure(path, code)
            case .tooLarge: throw FleetRefusal("\(path) has more than \(limit) bytes; see that it is the right file")
            }
        }
    }

    /// Reads a configuration file. Does not check the key's permissions, see ``objection(toKey:owner:credentials:)``.
    package static func configuration(_ path: String) throws(FleetRefusal) -> FleetConfiguration {
        guard let bytes = try read(path, atMost: FleetConfiguration.largest) else {
            throw FleetRefusal("there is no file \(path); see Documentation/Fleet.md for its content")
        }
        do throws(FleetRefusal) {
            return try FleetConfiguration(parsing: bytes)
        } catch {
            throw FleetRefusal("\(path): \(error)")
        }
    }

    /// The reason to reject a private key: users other than this one and root could have read or changed it (FL-10).
    ///
    /// - Parameters:
    ///   - owner: the user who may own it, in addition to root; `nil` for this process's user.
    ///   - credentials: systemd's directory of credentials for this unit; `nil` for the one in the environment.
    package static func objection(toKey path: String, owner: UInt32? = nil, credentials: String? = nil) -> String? {
        let owner = owner ?? geteuid()
        let credentials = credentials ?? getenv("CREDENTIALS_DIRECTORY").map { String(cString: $0) }
        // systemd grants access to credentials by an ACL, which shows as group permissions.
        let isCredential = credentials.map { !$0.isEmpty && path.hasPrefix($0 + "/") } ?? false
        var info = stat()
        guard stat(path, &info) == 0 else { return failure(path, errno).description }
        guard info.st_mode & S_IFMT == S_IFREG else { return "\(path) is no file; name the file of the key" }
        guard info.st_uid == owner || info.st_uid == 0 else {
            return
                "\(path) belongs to user \(info.st_uid), who can read and change the key; run: chown \(owner) \(path)"
        }
        guard info.st_mode & (isCredential ? 0o037 : 0o077) == 0 else {
            return "\(path): users other than its owner may read the key; run: chmod 600 \(path)"
        }
        return nil
    }

    private static func failure(_ path: String, _ code: CInt) -> FleetRefusal {
        FleetRefusal("\(path) cannot be read: \(String(cString: strerror(code))); let this user read it")
    }
}
