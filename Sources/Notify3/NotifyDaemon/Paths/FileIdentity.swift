import CLinux
import Glibc

/// As whom files are looked at.
enum FileIdentity: Hashable, Sendable {
    /// As notifyd itself.
    case own
    /// As another user, which takes root's rights.
    case other(user: UInt32, groups: [UInt32])

    /// As whom notifyd looks for a client; `nil` where it cannot.
    init?(of client: ClientIdentity, own user: UInt32 = geteuid()) {
        if client.user == user {
            self = .own
        } else if user == 0 {
            self = .other(user: client.user, groups: client.groups)
        } else {
            return nil
        }
    }

    /// Does `body` as this identity, on this thread and no other.
    func perform<Result>(_ body: () -> Result, denied: () -> Result) -> Result {
        guard case .other(let user, let groups) = self else { return body() }
        let own = Self.ownGroups
        let code = CLinux_actAs(user, groups, groups.count)
        // Not even this process's root may, as in a container: then it still is itself.
        guard code >= 0 else { return denied() }
        defer {
            // Root's way back is never barred, whatever a client asks for: the thread keeps the right to change its groups, which has just
            // been used. Were the kernel out of memory, to go on as the wrong user would be worse than to end.
            guard CLinux_actAsMyself(own, own.count) == 0 else { fatalError("notifyd could not act as itself again") }
        }
        return code == 0 ? body() : denied()
    }

    /// The supplementary groups of the process.
    static let ownGroups: [gid_t] = {
        let count = getgroups(0, nil)
        guard count > 0 else { return [] }
        var groups = [gid_t](repeating: 0, count: Int(count))
        let filled = getgroups(count, &groups)
        return Array(groups.prefix(max(0, Int(filled))))
    }()
}
