import Glibc

/// The users of this system.
enum SystemUser {
    /// The number of the user with this name; `nil` where there is none.
    static func identifier(ofUserNamed name: String) -> uid_t? {
        guard !name.isEmpty, !name.utf8.contains(0) else { return nil }
        var buffer = [CChar](repeating: 0, count: 16_384)
        while true {
            var entry = passwd()
            var found: UnsafeMutablePointer<passwd>?
            switch getpwnam_r(name, &entry, &buffer, buffer.count, &found) {
            case 0: return found?.pointee.pw_uid
            case ERANGE where buffer.count < 1_048_576: buffer = [CChar](repeating: 0, count: buffer.count * 2)
            case EINTR: continue
            default: return nil
            }
        }
    }
}
