import Glibc

/// The groups of a process as the kernel tells them: older buses do not.
enum ProcessGroups {
    /// The effective group and the supplementary ones; empty where this process may not see them.
    static func read(_ processID: UInt32) -> [UInt32] {
        let descriptor = open("/proc/\(processID)/status", O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return [] }
        defer { close(descriptor) }
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 4096)
        while case let count = Glibc.read(descriptor, &buffer, buffer.count), count > 0 { bytes += buffer[..<count] }
        return parse(String(decoding: bytes, as: UTF8.self))
    }

    /// Reads the text of `/proc/PID/status` (proc(5)): real, effective, saved and file system group; and the others.
    static func parse(_ status: String) -> [UInt32] {
        var groups: [UInt32] = []
        for line in status.split(separator: "\n") {
            let words = line.split { $0 == "\t" || $0 == " " }
            switch words.first {
            case "Gid:": groups += words.dropFirst(2).prefix(1).compactMap { UInt32($0) }
            case "Groups:": groups += words.dropFirst().compactMap { UInt32($0) }
            default: break
            }
        }
        return groups
    }
}
