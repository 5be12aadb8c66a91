package import DeviceConfiguration
import Glibc
@_spi(Extensions) package import SharedDevice

/// Deletes the paths of an adapter's manifest as the user who owns the data. It deletes in this process if that runs as
/// the user, else in a child that drops all rights of root before it opens a path.
package struct Deletion: Sendable {
    private let paths: [String]
    private let user: UInt32
    /// The timeout of a child, so that a stuck file system does not block the next attempt.
    package var patience = Duration.seconds(1800)
    /// How long a killed child may take to end. The kill may have no effect on a child that is stuck in a file system.
    package var killed = Duration.seconds(10)
    var checkpoint: @Sendable (DeclaredPath.Checkpoint) -> Void = { _ in }

    /// - Parameter paths: absolute paths that ``CleanupPath`` accepts.
    package init(paths: [String], user: UInt32) { (self.paths, self.user) = (paths, user) }

    /// Deletes at all paths, continues after a failure, and then throws the first one.
    package func run() async throws(AdapterFailure) -> UserDataDirectory.Removed {
        if user == geteuid() { return try await onSystemThread { () throws(AdapterFailure) in try runHere() } }
        let result: (status: Int32?, text: String)
        let attempted = "delete as user \(user) \(paths.joined(separator: ", "))"
        do throws(HelperProcess.Failure) {
            let arguments = ["remove", "--user", "\(user)", "--"] + paths
            result = try await HelperProcess.output(of: "/proc/self/exe", arguments, patience: patience, killed: killed)
        } catch {
            throw AdapterFailure("\(attempted): \(error.description)", remedy: "See the system's log")
        }
        guard let status = result.status else {
            throw AdapterFailure(
                "\(attempted): it has not ended within \(patience.components.seconds) s, nor when it was killed",
                remedy: "A file system there does not respond: see /proc/mounts, and unmount it with umount -fl"
            )
        }
        guard status == 0, let removed = UserDataDirectory.Removed(line: result.text) else {
            throw AdapterFailure(result.text.firstLine ?? "the deletion as user \(user) ended with status \(status)")
        }
        return removed
    }

    /// Like ``run()``, but in this process and on this thread.
    package func runHere() throws(AdapterFailure) -> UserDataDirectory.Removed {
        var removed = UserDataDirectory.Removed()
        var problem: AdapterFailure?
        for path in paths {
            do throws(UserDataError) {
                removed.add(try DeclaredPath(path, checkpoint: checkpoint).remove())
            } catch {
                problem = problem ?? AdapterFailure(error.description)
            }
        }
        if let problem { throw problem }
        return removed
    }
}

extension UserDataDirectory.Removed {
    /// The output of the child.
    package var line: String { "\(files) \(bytes)" }

    init?(line: String) {
        let numbers = line.split(separator: "\n").last?.split(separator: " ").compactMap { Int($0) } ?? []
        guard numbers.count == 2 else { return nil }
        self.init()
        (files, bytes) = (numbers[0], numbers[1])
    }
}

/// Switches the process to one user, irreversibly.
package enum UserRights {
    /// Drops root's groups, group and user. Call it before any thread is started, and exit if it throws.
    package static func take(_ user: SystemUser) throws(AdapterFailure) {
        guard geteuid() != user.number else { return }
        let hasGroups = user.name.map { initgroups($0, user.group) == 0 } ?? (setgroups(0, nil) == 0)
        guard hasGroups, setgid(user.group) == 0, setuid(user.number) == 0, setuid(0) != 0 else {
            let failure = "become user \(user.number): \(String(cString: strerror(errno)))"
            throw AdapterFailure(failure, remedy: "The adapter needs CAP_SETUID and CAP_SETGID")
        }
    }
}
