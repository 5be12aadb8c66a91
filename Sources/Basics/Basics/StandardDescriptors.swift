import Glibc

/// Descriptors 0 to 2. The library never occupies these numbers, even if the process was started without them:
/// otherwise text for standard error would go to the bus.
public enum StandardDescriptors {
    /// Runs `body`, which opens descriptors, while sockets hold the free numbers from 0 to 2.
    public static func leavingFree<Result>(_ body: () -> Result) -> Result {
        guard (0...2).contains(where: { fcntl($0, F_GETFD) < 0 }) else { return body() }
        var holders: [OwnedDescriptor] = []
        while true {
            let holder = OwnedDescriptor(socket(AF_UNIX, CInt(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0))
            guard 0...2 ~= holder.number else {
                holder.close()
                break
            }
            holders.append(holder)
        }
        defer { for holder in holders { holder.close() } }
        return body()
    }
}
