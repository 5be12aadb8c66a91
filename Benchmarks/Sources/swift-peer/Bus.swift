import Glibc
import NotifyCenter

/// What the roles need of NotifyCenter, used as any program would. What fails ends the process: half a measurement is
/// none.
struct Bus: Sendable {
    private let center = DarwinNotifyCenter()
    /// Whether handlers run on the thread that reads the bus, or wherever the library puts them unasked.
    private let isImmediate: Bool

    init() {
        switch getenv("PEER_DELIVERY").map({ String(cString: $0) }) {
        case nil, "immediate": isImmediate = true
        case "default": isImmediate = false
        case .some(let other): end("PEER_DELIVERY is \"\(other)\": immediate and default are known")
        }
    }

    /// A center connects with its first use. The C peers connect before their clock starts, and so must this one.
    func connect() {
        post("BenchConnected")
    }

    func post(_ name: String) {
        do {
            try center.post(NotificationName(name))
        } catch {
            end("post: \(error)")
        }
    }

    func observe(_ name: String, handler: @escaping @Sendable () -> Void) -> NotificationObservation {
        do {
            return isImmediate
                ? try center.observe(NotificationName(name), delivery: .immediate) { _ in handler() }
                : try center.observe(NotificationName(name)) { _ in handler() }
        } catch {
            end("observe: \(error)")
        }
    }

    /// Observes `count` names, PREFIX0, PREFIX1, …, with all requests under way at once.
    func observeMany(_ prefix: String, _ count: Int) async -> [NotificationObservation] {
        await withTaskGroup { group in
            for index in 0..<count {
                group.addTask {
                    do {
                        let name = NotificationName("\(prefix)\(index)")
                        return try await center.observe(name, delivery: .immediate) { _ in }
                    } catch {
                        end("observe: \(error)")
                    }
                }
            }
            return await group.reduce(into: []) { $0.append($1) }
        }
    }
}

/// Ends the process with a reason.
func end(_ reason: String) -> Never {
    var text = "peer: \(reason)\n"
    // Where it fails there is nobody left to tell; the exit status says it too.
    text.withUTF8 { _ = write(STDERR_FILENO, $0.baseAddress, $0.count) }
    exit(1)
}
