import Glibc

/// The groups that the machine has a user in. Not those of the user's process, which `/proc` tells: a connection that is handed on to
/// a child would speak with the groups of whatever program its first process runs by then.
enum UserGroups {
    /// Empty for a user that the machine does not know.
    static func of(_ user: UInt32) -> [UInt32] {
        var (entry, found) = (passwd(), UnsafeMutablePointer<passwd>?.none)
        var buffer = [CChar](repeating: 0, count: 16_384)
        guard getpwuid_r(user, &entry, &buffer, buffer.count, &found) == 0, found != nil else { return [] }
        var count: CInt = 256
        while true {
            var groups = [gid_t](repeating: 0, count: Int(count))
            let room = count
            if getgrouplist(entry.pw_name, entry.pw_gid, &groups, &count) >= 0 {
                return Array(groups.prefix(Int(count)))
            }
            // It says how many there are.
            guard count > room else { return [entry.pw_gid] }
        }
    }
}
