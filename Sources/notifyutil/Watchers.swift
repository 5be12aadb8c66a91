import Dispatch
import Glibc
import NotifyCenter

/// The names that are watched. Used before the main queue runs, and on it.
final class Watchers {
    private let format: Format
    private var tally: Tally
    private var observations: [NotificationObservation] = []
    private var nextToken = 1

    init(format: Format) {
        self.format = format
        tally = Tally()
    }

    var isEmpty: Bool { observations.isEmpty }

    func add(_ name: String, count: Int?, on center: DarwinNotifyCenter) throws(DBusError) {
        let token = nextToken
        nextToken += 1
        let (format, tally) = (format, tally)
        tally.add(token, count: count)
        // A line for each post, so no coalescing: the reading thread queues them for the main one.
        let observation = try center.observe(NotificationName(name), delivery: .immediate) { notification in
            let time = Timestamp.now
            DispatchQueue.main.async {
                guard tally.take(token) else { return }
                if let line = Line(token: token, time: time, notification: notification).text(format) {
                    Output.standard.write(line + "\n")
                }
                if tally.isOver { exit(0) }
            }
        }
        observations.append(observation)
    }
}

/// How many reports each watcher has left.
private final class Tally: @unchecked Sendable {
    // Unchecked: filled before the main queue runs, then used on it alone.
    private var remaining: [Int: Int?] = [:]

    func add(_ token: Int, count: Int?) { remaining.updateValue(count, forKey: token) }

    /// Whether this watcher reports once more.
    func take(_ token: Int) -> Bool {
        guard let entry = remaining[token] else { return false }
        guard let count = entry else { return true }
        if count > 1 { remaining.updateValue(count - 1, forKey: token) } else { remaining.removeValue(forKey: token) }
        return true
    }

    var isOver: Bool { remaining.isEmpty }
}
