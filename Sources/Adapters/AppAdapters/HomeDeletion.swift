package import DeviceConfiguration
package import Glibc
@_spi(Extensions) package import SharedDevice

/// Deletes the content of a person's home directory after the person's Linux session. As long as a process of that user
/// runs, nothing is deleted.
package struct HomeDeletion: Sendable {
    package let user: SystemUser
    package let home: String
    /// How long the user's last processes may take to end. A user's service manager ends ten seconds after the session.
    private let patience: Duration
    // Results, because the compiler (6.3) crashes on optional closures with typed errors.
    private let processes: @Sendable () -> Result<Set<pid_t>, AdapterFailure>
    private let delete: @Sendable () async -> Result<UserDataDirectory.Removed, AdapterFailure>

    /// The number of attempts if the user's processes come back during the deletion.
    private static let rounds = 3

    /// The user number of an account of the identity `login-session`, such as `uid-1000.login-session`; `nil` for other
    /// accounts.
    package static func user(ofAccount identifier: String) -> UInt32? {
        let first = identifier.split(separator: ".", maxSplits: 1, omittingEmptySubsequences: false)[0]
        guard first.hasPrefix("uid-"), first.dropFirst(4).utf8.allSatisfy({ (0x30...0x39).contains($0) }) else {
            return nil
        }
        return UInt32(first.dropFirst(4))
    }

    /// Whether the number is a person's. Lower ones are the system's (systemd's UIDS-GIDS), and so are those of dynamic
    /// services and of `nobody`. A user of systemd-homed is a person, but the home directory is not there after the
    /// session.
    package static func isPerson(_ number: UInt32) -> Bool {
        (1000...60_000).contains(number) || (65_536..<UInt32.max).contains(number)
    }

    /// - Throws: ``ValueFlaw`` if this is not the home directory of a person alone.
    package init(
        of user: SystemUser,
        patience: Duration = .seconds(30),
        processes: (@Sendable () -> Result<Set<pid_t>, AdapterFailure>)? = nil,
        delete: (@Sendable () async -> Result<UserDataDirectory.Removed, AdapterFailure>)? = nil
    ) throws(ValueFlaw) {
        guard Self.isPerson(user.number) else {
            let remedy = "only the home directories of people are deleted"
            throw ValueFlaw("user \(user.number) is no person's user", remedy)
        }
        guard user.name != nil, let home = user.home else {
            throw ValueFlaw("the system knows no home directory of user \(user.number)", "see getent passwd")
        }
        let path = try CleanupPath.wholeHome(home)
        (self.user, self.home, self.patience) = (user, path, patience)
        self.processes =
            processes ?? { Result { () throws(AdapterFailure) in try ProcessTree(by: nil, user: user.number).own } }
        self.delete = delete ?? { await Self.delete(path, user.number) }
    }

    private static func delete(
        _ path: String,
        _ user: UInt32
    ) async -> Result<UserDataDirectory.Removed, AdapterFailure> {
        do throws(AdapterFailure) {
            try await onSystemThread { () throws(AdapterFailure) in try checkPlace(of: path) }
            return .success(try await Deletion(paths: [path], user: user).run())
        } catch {
            return .failure(error)
        }
    }

    /// Throws unless all directories above are root's, and only root may write to them: another person who may write
    /// there could rename the home directory, so that an empty one is deleted. Blocks the thread on the file system.
    static func checkPlace(of path: String) throws(AdapterFailure) {
        var above = path.utf8[...]
        while let slash = above.lastIndex(of: UInt8(ascii: "/")) {
            above = above[..<slash]
            let place = above.isEmpty ? "/" : String(decoding: above, as: UTF8.self)
            var status = stat()
            guard lstat(place, &status) == 0, status.st_uid == 0, status.st_mode & 0o022 == 0 else {
                throw AdapterFailure(
                    "delete \(path): "
                        + "\(place) is missing, or others than root may write to it, so that the data may have been moved away",
                    remedy: "Give \(place) to root, and take the right to write from group and others"
                )
            }
        }
    }

    /// Waits for the end of the user's processes, deletes, and checks that no process of the user has come.
    package func run() async throws(AdapterFailure) -> UserDataDirectory.Removed {
        var removed = UserDataDirectory.Removed()
        for _ in 0..<Self.rounds {
            try await waitForProcesses()
            removed.add(try await delete().get())
            if try await look().isEmpty { return removed }
        }
        throw left(try await look())
    }

    private func look() async throws(AdapterFailure) -> Set<pid_t> {
        try await onSystemThread { [processes] () throws(AdapterFailure) in try processes().get() }
    }

    private func waitForProcesses() async throws(AdapterFailure) {
        let deadline = ContinuousClock.now + patience
        while true {
            let own = try await look()
            if own.isEmpty { return }
            guard ContinuousClock.now < deadline else { throw left(own) }
            try? await Task.sleep(for: min(patience / 10, .milliseconds(250)))
        }
    }

    private func left(_ own: Set<pid_t>) -> AdapterFailure {
        AdapterFailure(
            "delete \(home): processes of its user run: \(ProcessTree.describe(own.sorted().prefix(8)))",
            remedy: "End the user's sessions (loginctl terminate-user \(user.number)); with linger they never end"
        )
    }
}
