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

    /// The configuration in a file.
    ///
    /// - Throws: ``FleetRefusal`` with the file's path; also where others than its owner may read the key.
    package static func configuration(_ path: String) throws(FleetRefusal) -> FleetConfiguration {
        guard let bytes = try read(path, atMost: FleetConfiguration.largest) else {
            throw FleetRefusal("there is no file \(path); see Documentation/Fleet.md for what it has to say")
        }
        let configuration: FleetConfiguration
        do throws(FleetRefusal) {
            configuration = try FleetConfiguration(parsing: bytes)
        } catch {
            throw FleetRefusal("\(path): \(error)")
        }
        var info = stat()
        guard stat(configuration.key, &info) == 0 else { throw failure(configuration.key) }
        guard info.st_mode & 0o077 == 0 else {
            throw FleetRefusal(
                "\(configuration.key): others than its owner may read the key; run: chmod 600 \(configuration.key)"
            )
        }
        return configuration
    }

    private static func failure(_ path: String) -> FleetRefusal {
        FleetRefusal("\(path) cannot be read: \(String(cString: strerror(errno))); let this user read it")
    }
}
