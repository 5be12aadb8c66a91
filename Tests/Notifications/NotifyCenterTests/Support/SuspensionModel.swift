import Basics
import DBus
import Synchronization
import Testing

@testable import NotifyCenter

/// A step of a center. Tests try every sequence of steps.
enum Step: Hashable, Sendable {
    case post(NotificationName, String, immediately: Bool)
    case suspend
    case resume
    /// Removes the oldest remaining registration.
    case removeFirst
    case add(SuspensionBehavior)
    case addNamed(SuspensionBehavior)
    /// The handlers' queue runs its pending jobs.
    case runJobs
    /// The reading thread runs its pending requests.
    case flush

    /// All steps that do not add observers.
    static let allCases: [Step] = [
        .post("n", "A", immediately: false), .post("n", "B", immediately: false), .post("m", "A", immediately: false),
        .post("n", "A", immediately: true), .suspend, .resume, .removeFirst,
    ]

    static let allWithJobs = allCases + [.runJobs]

    /// Steps for a center without observers: its decisions before the first observer matter too.
    static let allWithFlush: [Step] = [
        .post("n", "A", immediately: false), .post("n", "A", immediately: true), .suspend, .resume, .add(.coalesce),
        .add(.hold), .flush,
    ]

    static let allWithAdding: [Step] =
        allCases.filter { $0 != .post("n", "B", immediately: false) } + SuspensionBehavior.allCases.map(Step.add)
        + [.addNamed(.coalesce), .addNamed(.deliverImmediately)]

    static func forEachSequence(beginning first: Step, length: Int, of steps: [Step], _ body: ([Step]) -> Void) {
        var sequence = [first]
        func extend() {
            if sequence.count == length { return body(sequence) }
            for step in steps {
                sequence.append(step)
                extend()
                sequence.removeLast()
            }
        }
        extend()
    }
}

/// A center that tests can drive with steps.
protocol Steppable: AnyObject {
    func add(_ behavior: SuspensionBehavior, name: NotificationName?, object: String?)
    func removeFirst()
    func post(_ name: NotificationName, _ object: String, immediately: Bool)
    func suspend()
    func resume()
    func runJobs()
    func flush()
}

extension Steppable {
    func perform(_ step: Step) {
        switch step {
        case .post(let name, let object, let immediately): post(name, object, immediately: immediately)
        case .suspend: suspend()
        case .resume: resume()
        case .removeFirst: removeFirst()
        case .add(let behavior): add(behavior, name: nil, object: nil)
        case .addNamed(let behavior): add(behavior, name: "n", object: "A")
        case .runJobs: runJobs()
        case .flush: flush()
        }
    }
}

/// The production router, without a bus. A delivery is written `observer:post`, both as numbers.
final class ModelledCenter: Steppable {
    let router = NotificationRouter()
    private let log = Log()
    /// The queue on which handlers run; `nil` to run them at once.
    let jobs: PendingJobs?
    /// The thread on which flushes run; `nil` to run them at once.
    private let readingThread: PendingJobs?
    private var registrations: [(observer: Registration, key: NotificationRouter.Registry.Key)] = []
    private var (added, posted) = (0, 0)

    init(jobs: PendingJobs? = nil, flushesLate: Bool = false) {
        self.jobs = jobs
        readingThread = flushesLate ? PendingJobs() : nil
    }

    var isSuspended: Bool { router.isSuspended }
    var pendingFlushes: Int { readingThread?.count ?? 0 }

    func runJobs() { jobs?.run() }

    func add(_ behavior: SuspensionBehavior, name: NotificationName?, object: String?) {
        let (number, log) = (added, log)
        let delivery = jobs.map { jobs in Delivery.scheduled { jobs.add($0) } } ?? .immediate
        let observer = Registration(delivery, .standard, behavior, gate: router.gate) { notification in
            log.add("\(number):\(notification.userInfo?["post"]?.intValue ?? -1)")
        }
        added += 1
        let object = object.map { NotificationObject(text: $0) }
        registrations.append((observer, router.add(observer, name: name, object: object)))
    }

    func removeFirst() {
        guard !registrations.isEmpty else { return }
        let (observer, key) = registrations.removeFirst()
        router.remove(observer, key)
    }

    func post(_ name: NotificationName, _ object: String, immediately: Bool) {
        var notification = WireNotification.testing(name, object, userInfo: ["post": .integer(Int64(posted))])
        notification.deliversImmediately = immediately
        posted += 1
        router.receive(notification)
    }

    func suspend() { router.suspend() }

    func resume() {
        guard router.resume() else { return }
        if let readingThread { readingThread.add { [router] in router.flush() } } else { router.flush() }
    }

    func flush() { readingThread?.run() }

    func takeDeliveries() -> [String] { log.take() }
}

/// A model of the rules, written as plainly as possible.
final class NaiveCenter: Steppable {
    private struct Observer {
        let number: Int
        let behavior: SuspensionBehavior
        let name: NotificationName?
        let object: String?
    }

    private struct Waiting {
        let observer: Int
        let name: NotificationName
        let object: String
        let post: Int
        /// Whether the notification came before the suspension. It then waits too, but behaviours do not apply to it.
        var arrivedBefore = false
    }

    private var observers: [Observer] = []
    private var waiting: [Waiting] = []
    /// The jobs that the handlers' queue has not yet run; `nil` without a queue.
    private var handedOver: [Waiting]?
    private var deliveries: [String] = []
    private var isSuspended = false
    /// Whether the backlog of a suspension keeps waiting until a ``Step/flush``, or the next notification.
    private let flushesLate: Bool
    private var (added, posted) = (0, 0)

    init(hasQueue: Bool = false, flushesLate: Bool = false) {
        handedOver = hasQueue ? [] : nil
        self.flushesLate = flushesLate
    }

    func add(_ behavior: SuspensionBehavior, name: NotificationName?, object: String?) {
        observers.append(Observer(number: added, behavior: behavior, name: name, object: object))
        added += 1
    }

    func removeFirst() {
        guard !observers.isEmpty else { return }
        let removed = observers.removeFirst()
        waiting.removeAll { $0.observer == removed.number }
        handedOver?.removeAll { $0.observer == removed.number }
    }

    func post(_ name: NotificationName, _ object: String, immediately: Bool) {
        let matching = observers.filter { ($0.name ?? name) == name && ($0.object ?? object) == object }
        let isImmediate = immediately || matching.contains { $0.behavior == .deliverImmediately }
        if !isSuspended || (isImmediate && !matching.isEmpty) { deliverAll() }
        for observer in matching {
            let new = Waiting(observer: observer.number, name: name, object: object, post: posted)
            if !isSuspended || isImmediate {
                deliver(new)
            } else if observer.behavior == .coalesce {
                waiting.removeAll {
                    $0.observer == new.observer && $0.name == name && $0.object == object && !$0.arrivedBefore
                }
                waiting.append(new)
            } else if observer.behavior == .hold {
                waiting.append(new)
            }
        }
        posted += 1
    }

    func suspend() {
        guard !isSuspended else { return }
        isSuspended = true
        for var entry in handedOver ?? [] {
            entry.arrivedBefore = true
            waiting.append(entry)
        }
        if handedOver != nil { handedOver = [] }
    }

    func resume() {
        isSuspended = false
        if !flushesLate { deliverAll() }
    }

    func flush() {
        if !isSuspended { deliverAll() }
    }

    func runJobs() {
        for entry in handedOver ?? [] { call(entry) }
        if handedOver != nil { handedOver = [] }
    }

    func takeDeliveries() -> [String] {
        defer { deliveries = [] }
        return deliveries
    }

    private func deliverAll() {
        waiting.forEach(deliver)
        waiting = []
    }

    private func deliver(_ entry: Waiting) {
        if handedOver == nil { call(entry) } else { handedOver?.append(entry) }
    }

    private func call(_ entry: Waiting) { deliveries.append("\(entry.observer):\(entry.post)") }
}

/// A serial queue that runs its jobs on demand.
final class PendingJobs: Sendable {
    private let jobs = Locked<[@Sendable () -> Void]>([])

    var count: Int { jobs.withLock { $0.count } }

    func add(_ job: @escaping @Sendable () -> Void) { jobs.withLock { $0.append(job) } }

    func run() {
        let jobs = jobs.withLock { jobs in
            defer { jobs = [] }
            return jobs
        }
        for job in jobs { job() }
    }
}

extension WireNotification {
    static func testing(_ name: NotificationName, _ object: String?, userInfo: UserInfo? = nil) -> WireNotification {
        WireNotification(
            name: name,
            object: object.map { NotificationObject(text: $0) },
            userInfo: userInfo,
            sender: nil
        )
    }
}
