import Glibc
import NotifyCenter

/// The calls of NotifyCenter that the roles make. An error ends the process, because a partial measurement is useless.
struct Bus: Sendable {
    private let center = DarwinNotifyCenter()
    /// Whether handlers run on the reading thread, or with the library's default delivery.
    private let isImmediate: Bool

    init() {
        switch getenv("PEER_DELIVERY").map({ String(cString: $0) }) {
        case nil, "immediate": isImmediate = true
        case "default": isImmediate = false
        case .some(let other): end("PEER_DELIVERY is \"\(other)\": immediate and default are known")
        }
    }

    /// Connects. A center would connect with its first use, but the C peers are connected when their clock starts.
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

    /// Observes `count` names, PREFIX0, PREFIX1, …, with all requests in flight at once.
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

func end(_ reason: String) -> Never {
    var text = "peer: \(reason)\n"
    // If the write fails, the exit status still reports the error.
    text.withUTF8 { _ = write(STDERR_FILENO, $0.baseAddress, $0.count) }
    exit(1)
}
