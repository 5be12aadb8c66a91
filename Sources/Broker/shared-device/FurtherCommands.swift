import Basics
import CommandParts
import FoundationEssentials
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
    private static let folder = (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe"))
        .map(parentDirectory)

    /// The names of the programs that can be run, in order.
    static var names: [String] {
        let files = folder.flatMap { try? FileManager.default.contentsOfDirectory(atPath: $0) } ?? []
        return files.filter { $0.hasPrefix(prefix) }.map { String($0.dropFirst(prefix.count)) }
            .filter { path(of: $0) != nil }.sorted()
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
        // A name contains no slash, so that it stays in the folder.
        let isName = name.wholeMatch(of: /[a-z0-9][a-z0-9\-]*/) != nil
        guard let folder, isName, !services.contains(name) else { return nil }
        let path = "\(folder)/\(prefix)\(name)"
        return isFile(path) && access(path, X_OK) == 0 ? path : nil
    }
}
