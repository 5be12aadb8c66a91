package import DeviceConfiguration
import Glibc
package import SharedDevice

/// Deletes what an adapter's manifest names, as the user whose data it is: in this process where that is its user, else in a child that has given up
/// every right of root before it opens a path.
package struct Deletion: Sendable {
    package let paths: [String]
    package let user: UInt32
    private let patience: Duration
    private let killed: Duration
    private let checkpoint: @Sendable (DeclaredPath.Checkpoint) -> Void

    /// - Parameters:
    ///   - paths: absolute, as ``CleanupPath`` lets them through.
    ///   - user: whose data it is.
    ///   - patience: how long a child may delete: a file system that stands still must not hold up the next try for ever. The child may not end then,
    ///     although it is killed.
    ///   - killed: how long it may take to end after it was killed.
    package init(
        paths: [String],
        user: UInt32,
        patience: Duration = .seconds(1800),
        killed: Duration = .seconds(10),
        checkpoint: @escaping @Sendable (DeclaredPath.Checkpoint) -> Void = { _ in }
    ) {
        self.paths = paths
        self.user = user
        self.patience = patience
        self.killed = killed
        self.checkpoint = checkpoint
    }

    /// On return nothing is left at the paths. All of them are tried.
    ///
    /// - Throws: ``AdapterFailure``: the first of what could not be deleted.
    package func run() async throws(AdapterFailure) -> UserDataDirectory.Removed {
        if user == geteuid() {
            let result = await onSystemThread { runHere() }
            return try result.get()
        }
        let result: (status: Int32?, text: String)
        let attempted = "delete as user \(user)"
        do throws(HelperProcess.Failure) {
            result = try await HelperProcess.output(
                of: "/proc/self/exe",
                ["remove", "--user", "\(user)", "--"] + paths,
                patience: patience,
                killed: killed
            )
        } catch {
            throw AdapterFailure(
                attempted,
                paths.joined(separator: ", "),
                error.description,
                remedy: "See the system's log"
            )
        }
        guard let status = result.status else {
            throw AdapterFailure(
                attempted,
                paths.joined(separator: ", "),
                "it has not ended within \(patience.components.seconds) s, nor when it was killed",
                remedy: "A file system there does not answer: see /proc/mounts, and unmount it with umount -fl"
            )
        }
        guard status == 0, let removed = UserDataDirectory.Removed(line: result.text) else {
            let reason = result.text.split(separator: "\n").first.map(String.init)
            throw AdapterFailure(reason: reason ?? "the deletion as user \(user) ended with status \(status)")
        }
        return removed
    }

    /// Deletes in this process, on this thread.
    package func runHere() -> Result<UserDataDirectory.Removed, AdapterFailure> {
        var removed = UserDataDirectory.Removed()
        var problem: AdapterFailure?
        for path in paths {
            do throws(UserDataError) {
                removed.add(try DeclaredPath(path, checkpoint: checkpoint).remove())
            } catch {
                if problem == nil { problem = AdapterFailure(error) }
            }
        }
        return problem.map { .failure($0) } ?? .success(removed)
    }
}

extension UserDataDirectory.Removed {
    /// What the child writes of it.
    package var line: String { "\(files) \(bytes)" }

    init?(line: String) {
        let numbers = line.split(separator: "\n").last?.split(separator: " ").compactMap { Int($0) } ?? []
        guard numbers.count == 2 else { return nil }
        self.init()
        (files, bytes) = (numbers[0], numbers[1])
    }
}

extension AdapterFailure {
    fileprivate init(reason: String) { self.init(HelperProcess.Failure(reason)) }
}

/// The rights of one user, for good.
package enum UserRights {
    /// Gives up root's rights: groups, group and user. To be called before any thread is started.
    ///
    /// - Throws: ``AdapterFailure``: the process must not go on.
    package static func take(_ user: SystemUser) throws(AdapterFailure) {
        guard geteuid() != user.number else { return }
        let hasGroups = user.name.map { initgroups($0, user.group) == 0 } ?? (setgroups(0, nil) == 0)
        guard hasGroups, setgid(user.group) == 0, setuid(user.number) == 0, setuid(0) != 0 else {
            throw AdapterFailure(
                "become",
                "user \(user.number)",
                String(cString: strerror(errno)),
                remedy: "The adapter needs CAP_SETUID and CAP_SETGID"
            )
        }
    }
}
