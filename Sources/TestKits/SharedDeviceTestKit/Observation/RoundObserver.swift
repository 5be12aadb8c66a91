import Basics
import DBus
import FoundationEssentials
import Glibc
import SharedDevice
import Synchronization

/// Follows the cleanup round of one session, also across outages, and notes when it first saw each state.
final class RoundObserver: Sendable {
    private struct State {
        var report: CleanupReport?
        var seen: [String: [CleanupReport.Progress: ContinuousClock.Instant]] = [:]
        var onTold: [String: @Sendable () -> Void] = [:]
    }

    let session: UInt64
    private let state: SharedState
    private let following: Task<Void, Never>

    /// On the heap, because the task may briefly outlive this object.
    private final class SharedState: Sendable {
        let content: Locked<State>
        init(_ onTold: [String: @Sendable () -> Void]) { content = Locked(State(onTold: onTold)) }
    }

    /// - Parameter onTold: called once per app, when the ledger says that the app was told.
    init(_ session: UInt64, through application: SharedDeviceApplication, onTold: [String: @Sendable () -> Void]) {
        self.session = session
        let state = SharedState(onTold)
        self.state = state
        following = Task {
            while !Task.isCancelled {
                let report = try? await application.waitForCleanup(ofSession: session, within: .seconds(600)) {
                    Self.take($0, into: state)
                }
                if report?.isComplete == true { return }
                // Retries, because the broker or the bus may come back.
                try? await Task.sleep(for: .milliseconds(100))
            }
        }
    }

    deinit { following.cancel() }

    /// The last state of the round; `nil` until the broker has reported one.
    var report: CleanupReport? { state.content.withLock { $0.report } }

    func seen(_ app: String, _ progress: CleanupReport.Progress) -> ContinuousClock.Instant? {
        state.content.withLock { $0.seen[app]?[progress] }
    }

    private static func take(_ report: CleanupReport, into state: SharedState) {
        let due = state.content.withLock { state -> [@Sendable () -> Void] in
            state.report = report
            var due: [@Sendable () -> Void] = []
            for app in report.apps {
                let known = state.seen[app.identifier]?[app.progress]
                state.seen[app.identifier, default: [:]][app.progress] = known ?? .now
                guard app.toldAfter != nil,
                    let name = state.onTold.keys.first(where: { TestApp.isNamed(app.identifier, $0) }),
                    let action = state.onTold.removeValue(forKey: name)
                else { continue }
                due.append(action)
            }
            return due
        }
        for action in due { action() }
    }
}

/// An event on a test device, as a report's timeline shows it.
public struct DeviceEvent: Sendable, Hashable, Codable {
    /// The kind of an event.
    public enum Kind: String, Sendable, Codable, CaseIterable {
        /// A sign-in or sign-out through the kit.
        case signIn, signOut
        /// The session was locked or unlocked.
        case locked, unlocked
        /// From the ledger: the app was told; it reported that it began, failed or finished; it was waived or enforced.
        case told, begun, failed, finished, waived, enforced
        /// A process started, or ended.
        case started, ended
        /// Faults: the test stopped, resumed or killed a process; another connection posted the broker's broadcast.
        case stopped, continued, killed, spoofed
        /// The bus carried the broadcast after which apps ask, from the broker or from another sender.
        case broadcast
    }

    /// In milliseconds since the sign-out; negative before it.
    public let milliseconds: Double
    /// An app's identifier, or ``deviceLane``, ``brokerLane``, ``busLane``.
    public let lane: String
    /// The kind of event.
    public let kind: Kind
    /// The event in words.
    public let text: String

    /// The lane of the kit's own app.
    public static let deviceLane = "device"
    /// The broker's lane.
    public static let brokerLane = "broker"
    /// The bus's lane.
    public static let busLane = "bus"
    /// The lanes that belong to no app.
    static let lanes: Set<String> = [deviceLane, brokerLane, busLane]

    /// Creates an event, for tests of code that shows timelines.
    public init(milliseconds: Double, lane: String, kind: Kind, text: String) {
        self.milliseconds = milliseconds
        self.lane = lane
        self.kind = kind
        self.text = text
    }
}

/// The kit's own actions and observations, each with its time.
final class ObservationLog: Sendable {
    struct Entry: Sendable {
        let instant: ContinuousClock.Instant
        let lane: String
        let kind: DeviceEvent.Kind
        let text: String
    }

    private let list = Locked<[Entry]>([])

    var entries: [Entry] { list.withLock { $0 } }

    func add(_ lane: String, _ kind: DeviceEvent.Kind, _ text: String) {
        let entry = Entry(instant: .now, lane: lane, kind: kind, text: text)
        list.withLock { $0.append(entry) }
    }
}

/// The kernel's state of a process.
public enum ProcessState {
    /// Returns the letter of the state in proc(5), for instance `R`, `S`, `T` (stopped), `Z` (ended and not collected);
    /// `nil` if there is no such process.
    public static func letter(of identifier: Int32) -> Character? {
        guard let text = try? String(contentsOfFile: "/proc/\(identifier)/stat", encoding: .utf8) else { return nil }
        // The program's name comes first, in parentheses, and may itself contain parentheses.
        return text.split(separator: ")").last?.first { $0 != " " }
    }

    /// Whether it is stopped (SIGSTOP).
    public static func isStopped(_ identifier: Int32) -> Bool { letter(of: identifier) == "T" }

    /// Whether it is alive and was started with this environment variable.
    static func isAlive(_ identifier: Int32, withEnvironment variable: String) -> Bool {
        guard let letter = letter(of: identifier), letter != "Z" else { return false }
        let environment = FileManager.default.contents(atPath: "/proc/\(identifier)/environ")
        return environment?.split(separator: 0).contains { Array($0) == Array(variable.utf8) } ?? false
    }

    /// The living processes that were started with this environment variable.
    static func alive(withEnvironment variable: String) -> [Int32] {
        let entries = (try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []
        return entries.compactMap { Int32($0) }.filter { isAlive($0, withEnvironment: variable) }
    }
}
