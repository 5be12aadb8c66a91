import Dispatch
import Glibc
import NotifyCenter
import Synchronization
import notify

/// Forks while other threads post, register and observe. Each child posts once, and tries to observe. Prints "child
/// signal NUMBER" or "child status NUMBER" for each child that fails, and "forked COUNT" at the end.
enum ForkLoad {
    private static let name: NotificationName = "org.example.fork.child"
    private static let reports = Atomic<Int>(0)
    /// The number of reports in a child.
    private static let ownReports = Atomic<Int>(0)

    static func run(_ way: String, _ count: Int) throws -> Never {
        var inherited: Int32 = -1
        guard notify_register_check("org.example.fork.inherited", &inherited) == 0 else { exit(2) }
        let failures = UnthrownFailures.observe { _ in reports.wrappingAdd(1, ordering: .relaxed) }
        try startLoad()
        for _ in 0..<count {
            let child = fork()
            if child == 0 { _exit(body(way, inherited)) }
            var status: CInt = 0
            guard child > 0, waitpid(child, &status, 0) == child else { exit(3) }
            if status != 0 { say("child \(status & 0x7f != 0 ? "signal \(status & 0x7f)" : "status \(status >> 8)")") }
        }
        say("forked \(count)")
        withExtendedLifetime(failures) { _exit(0) }
    }

    private static func startLoad() throws {
        let busy: NotificationName = "org.example.fork.busy"
        again("post") { _ = try? DarwinNotifyCenter.default.post(busy) }
        again("distributed") {
            _ = try? DistributedNotifyCenter.default.post(busy, userInfo: ["key": .string("value")])
        }
        again("register") {
            var token: Int32 = -1
            _ = notify_register_check(busy.rawValue, &token)
            _ = notify_post(busy.rawValue)
            _ = notify_cancel(token)
        }
        again("observe") {
            let observation = try? DarwinNotifyCenter.default.observe(busy, delivery: .immediate) { _ in }
            observation?.cancel()
            UnthrownFailures.report(ChildFailure(), in: "a thread of the parent")
        }
        // The reading threads, too, have then received each kind of post once.
        try DarwinNotifyCenter.default.flush()
        try DistributedNotifyCenter.default.flush()
    }

    /// Repeats `work` on a thread until the process ends, with pauses in which the bus can serve the children. The first
    /// time is on this thread: a thread that uses a type for the first time holds a lock of Swift's runtime, which a child
    /// may need.
    private static func again(_ label: String, _ work: @escaping @Sendable () -> Void) {
        work()
        DispatchQueue(label: label).async {
            while true {
                work()
                usleep(100)
            }
        }
    }

    private struct ChildFailure: Error {}

    private static func fork() -> pid_t {
        // Swift does not import fork.
        typealias Fork = @convention(c) () -> pid_t
        guard let symbol = dlsym(nil, "fork") else { exit(3) }
        return unsafeBitCast(symbol, to: Fork.self)()
    }

    private static func body(_ way: String, _ inherited: Int32) -> Int32 {
        // Kills a child that hangs.
        alarm(30)
        do {
            switch way {
            case "notify": return postByNotify3(inherited)
            case "callback": return try postByCallbackCenter()
            case "distributed":
                try DistributedNotifyCenter.default.post(name, userInfo: ["key": .string("value")])
                return isRefused { _ = try DistributedNotifyCenter.default.observe(name) { _ in } } ? 0 : 4
            default:
                try DarwinNotifyCenter.default.post(name)
                try DarwinNotifyCenter.default.flush()
                return isRefused { _ = try DarwinNotifyCenter.default.observe(name) { _ in } } ? 0 : 4
            }
        } catch {
            say("\(error)")
            return 5
        }
    }

    private static func isRefused(_ observe: () throws -> Void) -> Bool {
        do {
            try observe()
            return false
        } catch {
            return (error as? DBusError)?.code == .closed
        }
    }

    private static func postByNotify3(_ inherited: Int32) -> Int32 {
        var (check, token): (Int32, Int32) = (0, -1)
        guard notify_check(inherited, &check) == NOTIFY_STATUS_INVALID_TOKEN else { return 10 }
        guard notify_register_check(name.rawValue, &token) == NOTIFY_STATUS_OPT_DISABLE else { return 11 }
        return notify_post(name.rawValue) == 0 ? 0 : 12
    }

    /// The functions of CoreFoundation use this center, and report the errors that it throws.
    private static func postByCallbackCenter() throws -> Int32 {
        let center = CallbackCenter.darwin
        try center.post(name, object: nil, content: .none, options: [])
        let isRefused = isRefused { try center.add(1, name: name, object: nil, suspensionBehavior: .coalesce) { _ in } }
        guard isRefused else { return 20 }
        center.removeEvery(1)
        let before = reports.load(ordering: .relaxed)
        let observation = UnthrownFailures.observe { _ in ownReports.wrappingAdd(1, ordering: .relaxed) }
        UnthrownFailures.report(ChildFailure(), in: "a forked child")
        observation.cancel()
        guard ownReports.load(ordering: .relaxed) == 1 else { return 21 }
        return reports.load(ordering: .relaxed) == before ? 0 : 22
    }
}
