import Basics
import CLinux
import DBus
import DeviceConfiguration
import Dispatch
import Glibc

/// Notices through the kernel (rtnetlink(7)) that the network has come back. Calls its handler once for each burst of
/// events.
///
/// The network is back when a working link has a new address, or when there is a new route to the outside. A renewed
/// address does not count, because routers renew addresses every few minutes.
///
/// Unchecked: after `init`, only code on `queue` touches the mutable state.
final class NetworkWatch: @unchecked Sendable {
    /// How long the network has to be quiet, and the shortest time between two calls. It limits the calls for an
    /// unstable link.
    static let (quiet, pause): (Duration, Duration) = (.seconds(1), .seconds(10))

    private let cameBack: @Sendable () -> Void
    private let queue = DispatchQueue(label: "NetworkWatch")
    private let source: any DispatchSourceRead
    private var settling = SettlingPeriod(quiet: quiet)
    private var isWakeUpScheduled = false
    private var addresses: Set<String>
    private var hasNewRoute = false
    private var last: ContinuousClock.Instant?

    /// - Parameter cameBack: Called on the watch's own queue.
    init(cameBack: @escaping @Sendable () -> Void) throws(Problem) {
        let descriptor = CLinux_openNetworkEvents()
        guard descriptor >= 0 else {
            throw Problem("no netlink socket: \(String(cString: strerror(errno))); allow AF_NETLINK to the service")
        }
        self.cameBack = cameBack
        source = DispatchSource.makeReadSource(fileDescriptor: descriptor, queue: queue)
        // The current addresses are not new. Changes during this call are noticed, because the socket is open.
        addresses = Self.presentAddresses() ?? []
        source.setEventHandler { [weak self] in self?.hasEvents(descriptor) }
        source.setCancelHandler { close(descriptor) }
        source.activate()
    }

    deinit { source.cancel() }

    private func hasEvents(_ descriptor: CInt) {
        // The kernel may have truncated a burst. A truncated burst counts as any event, and the comparison of addresses
        // decides.
        let events = CLinux_readNetworkEvents(descriptor)
        guard events != 0 else { return }
        if events & CLINUX_NEW_ROUTE != 0 { hasNewRoute = true }
        settling.eventOccurred(at: .now)
        schedule()
    }

    private func schedule() {
        guard !isWakeUpScheduled, let deadline = settling.deadline else { return }
        isWakeUpScheduled = true
        after(max(.zero, deadline - .now)) { watch in
            watch.isWakeUpScheduled = false
            if watch.settling.isOver(at: .now) { watch.look() } else { watch.schedule() }
        }
    }

    private func after(_ wait: Duration, _ body: @escaping @Sendable (NetworkWatch) -> Void) {
        let (seconds, attoseconds) = wait.components
        let nanoseconds = Int(seconds) * 1_000_000_000 + Int(attoseconds / 1_000_000_000)
        queue.asyncAfter(deadline: .now() + .nanoseconds(nanoseconds)) { [weak self] in if let self { body(self) } }
    }

    private func look() {
        guard let present = Self.presentAddresses() else { return }
        let isBack = !present.isSubset(of: addresses) || hasNewRoute && !present.isEmpty
        addresses = present
        guard isBack else { return }
        if let last, ContinuousClock.now - last < Self.pause {
            hasNewRoute = true
            // Repeat at the end of the pause, for everything that happens until then.
            settling.eventOccurred(at: last + Self.pause - Self.quiet)
            return schedule()
        }
        hasNewRoute = false
        last = .now
        cameBack()
    }

    /// The non-local addresses of working links; `nil` if the kernel does not return them.
    private static func presentAddresses() -> Set<String>? {
        var list: UnsafeMutablePointer<ifaddrs>?
        guard getifaddrs(&list) == 0 else { return nil }
        defer { freeifaddrs(list) }
        var addresses: Set<String> = []
        for entry in sequence(first: list, next: { $0?.pointee.ifa_next }) {
            guard let entry = entry?.pointee, let address = entry.ifa_addr, entry.ifa_flags & UInt32(IFF_UP) != 0,
                entry.ifa_flags & UInt32(IFF_RUNNING) != 0, entry.ifa_flags & UInt32(IFF_LOOPBACK) == 0
            else { continue }
            let length: socklen_t
            switch CInt(address.pointee.sa_family) {
            case AF_INET: length = socklen_t(MemoryLayout<sockaddr_in>.size)
            case AF_INET6: length = socklen_t(MemoryLayout<sockaddr_in6>.size)
            default: continue
            }
            var name = [CChar](repeating: 0, count: Int(NI_MAXHOST))
            guard getnameinfo(address, length, &name, socklen_t(name.count), nil, 0, NI_NUMERICHOST) == 0 else {
                continue
            }
            let text = String(decoding: name.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
            // Each link has a link-local address, with or without a network.
            if !text.hasPrefix("fe80:") { addresses.insert(text) }
        }
        return addresses
    }
}
