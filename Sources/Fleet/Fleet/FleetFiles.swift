import Glibc

/// Small files that a program of the fleet's reads. Blocks the thread on the file system.
package enum FleetFiles {
    /// The content; `nil` where there is no such file.
    ///
    /// - Throws: ``FleetRefusal`` for what cannot be read, or is larger.
    package static func read(_ path: String, atMost limit: Int) throws(FleetRefusal) -> [UInt8]? {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
        guard descriptor >= 0 else {
            if errno == ENOENT { return nil }
            throw failure(path)
        }
        defer { close(descriptor) }
        var content: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 16 << 10)
        while content.count <= limit {
            let count = Glibc.read(descriptor, &chunk, chunk.count)
            if count == 0 { return content }
            if count > 0 { content += chunk[..<count] } else if errno != EINTR { throw failure(path) }
        }
        throw FleetRefusal("\(path) has more than \(limit) bytes; see that it is the right file")
    }

    /// The configuration in a file. Whether its key may be used, ``objection(toKey:owner:credentials:)`` says.
    ///
    /// - Throws: ``FleetRefusal`` with the file's path.
    package static func configuration(_ path: String) throws(FleetRefusal) -> FleetConfiguration {
        guard let bytes = try read(path, atMost: FleetConfiguration.largest) else {
            throw FleetRefusal("there is no file \(path); see Documentation/Fleet.md for what it has to say")
        }
        do throws(FleetRefusal) {
            return try FleetConfiguration(parsing: bytes)
        } catch {
            throw FleetRefusal("\(path): \(error)")
        }
    }

    /// Why a private key is not used: others than this user and root could have read it, or changed it (FL-10).
    ///
    /// - Parameters:
    ///   - owner: whose it may be, beside root's; `nil` for this process's user.
    ///   - credentials: systemd's folder of what it has handed to this unit; `nil` for that of the environment.
    /// - Returns: `nil` where nothing is wrong with it.
    package static func objection(
        toKey path: String,
        owner: UInt32? = nil,
        credentials: String? = nil
    ) -> String? {
        let owner = owner ?? geteuid()
        let credentials = credentials ?? getenv("CREDENTIALS_DIRECTORY").map { String(cString: $0) }
        // systemd lets the unit read them by an access list, which looks like rights of the group.
        let isCredential = credentials.map { !$0.isEmpty && path.hasPrefix($0 + "/") } ?? false
        var info = stat()
        guard stat(path, &info) == 0 else { return failure(path).description }
        guard info.st_mode & S_IFMT == S_IFREG else { return "\(path) is no file; name the file of the key" }
        guard info.st_uid == owner || info.st_uid == 0 else {
            return
                "\(path) belongs to user \(info.st_uid), who can read and change the key; run: chown \(owner) \(path)"
        }
        guard info.st_mode & (isCredential ? 0o037 : 0o077) == 0 else {
            return "\(path): others than its owner may read the key; run: chmod 600 \(path)"
        }
        return nil
    }

    private static func failure(_ path: String) -> FleetRefusal {
        FleetRefusal("\(path) cannot be read: \(String(cString: strerror(errno))); let this user read it")
    }
}
