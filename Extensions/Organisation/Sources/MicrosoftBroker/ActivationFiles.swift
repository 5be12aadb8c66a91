import FoundationEssentials
import Glibc

/// The service files of the session bus. If one of them gives our name to another program, the bus could start that
/// program instead, and clients would reach either program.
package enum ActivationFiles {
    /// The directories that a session bus reads (D-Bus specification, “Message Bus Starting Services”).
    package static func directories(environment: [String: String]) -> [String] {
        func path(_ name: String) -> String? { environment[name].flatMap { $0.hasPrefix("/") ? $0 : nil } }
        let home = path("XDG_DATA_HOME") ?? path("HOME").map { $0 + "/.local/share" }
        let shared = environment["XDG_DATA_DIRS"]?.split(separator: ":").map(String.init) ?? ["/usr/local/share"]
        let runtime = path("XDG_RUNTIME_DIR")
        let all = [runtime, home].compactMap { $0 } + shared.filter { $0.hasPrefix("/") } + ["/usr/share"]
        var seen: Set<String> = []
        return all.map { $0 + "/dbus-1/services" }.filter { seen.insert($0).inserted }
    }

    /// The files that give the name to another program. Blocks this thread for the file system.
    package static func others(named name: String, than program: String, in directories: [String]) -> [String] {
        directories.flatMap { directory in
            ((try? FileManager.default.contentsOfDirectory(atPath: directory)) ?? []).sorted()
                .filter { $0.hasSuffix(".service") }.map { directory + "/" + $0 }
        }
        .filter { file in
            // The bus reads larger files too, but real service files are small.
            var information = stat()
            guard stat(file, &information) == 0, information.st_mode & S_IFMT == S_IFREG,
                information.st_size <= 65_536, let content = FileManager.default.contents(atPath: file)
            else { return false }
            let keys = keys(of: String(decoding: content, as: UTF8.self))
            guard keys["Name"] == name else { return false }
            let words = (keys["Exec"] ?? "").split { $0 == " " || $0 == "\"" }
            return words.first?.split(separator: "/").last.map(String.init) != program
        }
    }

    private static func keys(of text: String) -> [String: String] {
        var keys: [String: String] = [:]
        for line in text.split(whereSeparator: \.isNewline) {
            let parts = line.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            guard parts.count == 2 else { continue }
            keys[parts[0].filter { !$0.isWhitespace }] = String(parts[1].drop(while: \.isWhitespace))
        }
        return keys
    }
}
