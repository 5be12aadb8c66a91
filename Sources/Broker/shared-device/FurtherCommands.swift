import CommandParts
import Glibc

/// Commands that other packages add: `shared-device NAME` runs the program `shared-device-NAME` beside this one, as git
/// finds its commands. `PATH` is not searched: this command runs as root.
enum FurtherCommands {
    private static let prefix = "shared-device-"
    /// The project's programs that are no commands: the system starts them, or an app does.
    private static let services: Set<String> = [
        "agent", "broker", "cleanup", "controller", "identity", "microsoft-broker", "sign-in",
    ]

    /// The folder of this program; `nil` if the system does not tell it.
    private static let folder: String? = {
        var buffer = [UInt8](repeating: 0, count: Int(PATH_MAX))
        let count = readlink("/proc/self/exe", &buffer, buffer.count)
        guard count > 0, let end = buffer[..<count].lastIndex(of: UInt8(ascii: "/")) else { return nil }
        return String(decoding: buffer[..<end], as: UTF8.self)
    }()

    /// The names of the programs that can be run, in order.
    static var names: [String] {
        guard let folder, let directory = opendir(folder) else { return [] }
        defer { closedir(directory) }
        var names: [String] = []
        while let entry = readdir(directory) {
            let file = withUnsafeBytes(of: &entry.pointee.d_name) { name in
                String(decoding: name.prefix { $0 != 0 }, as: UTF8.self)
            }
            guard file.hasPrefix(prefix) else { continue }
            let name = String(file.dropFirst(prefix.count))
            if path(of: name) != nil { names.append(name) }
        }
        return names.sorted()
    }

    /// For the help of this command; empty if there are none, or if the arguments ask for no help.
    static var help: String {
        guard CommandLine.arguments.contains(where: ["help", "-h", "--help"].contains) else { return "" }
        let names = names
        if names.isEmpty { return "" }
        return "\n\nThe programs beside this one are commands, too: \(names.joined(separator: ", "))."
    }

    /// Replaces this process by the program that the first argument names. Returns if it names none.
    static func runInstead(_ arguments: [String], known: Set<String>) {
        guard arguments.count > 1 else { return }
        var words = Array(arguments.dropFirst())
        // `help NAME …` is `NAME … --help`.
        if words.count > 1, words[0] == "help" { words = words.dropFirst() + ["--help"] }
        guard !known.contains(words[0]), let path = path(of: words[0]) else { return }
        var pointers = ([path] + words.dropFirst()).map { strdup($0) as UnsafeMutablePointer<CChar>? } + [nil]
        execv(path, &pointers)
        warn("could not run \(path): \(String(cString: strerror(errno)))")
        exit(EX_OSERR)
    }

    private static func path(of name: String) -> String? {
        guard let folder, !name.isEmpty, !name.hasPrefix("-"), name.utf8.allSatisfy(isPart), !services.contains(name)
        else { return nil }
        let path = "\(folder)/\(prefix)\(name)"
        var information = stat()
        guard stat(path, &information) == 0, information.st_mode & S_IFMT == S_IFREG, access(path, X_OK) == 0 else {
            return nil
        }
        return path
    }

    /// A name contains no slash, so that it stays in the folder.
    private static func isPart(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"): true
        default: false
        }
    }
}
