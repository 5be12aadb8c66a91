import DBusTransport
import Synchronization

/// Enters refusals into the audit log, but not more than ``RefusalLimiter`` lets through.
final class RefusalLog: Sendable {
    private let broker: DeviceBroker
    private let limiter: Locked<RefusalLimiter>
    private let start = ContinuousClock.now

    init(broker: DeviceBroker, limiter: RefusalLimiter = RefusalLimiter()) {
        self.broker = broker
        self.limiter = Locked(limiter)
    }

    /// - Parameters:
    ///   - app: the name that the refused caller gives itself; of any length.
    ///   - code: why it was refused.
    func note(_ code: String, of method: String, by app: String) async {
        let app = app.shortened(to: 200)
        let now = seconds
        switch limiter.withLock({ $0.note(app: app, code: code, at: now) }) {
        case .log: await broker.note(.refused, app: app, detail: "\(code) \(method)")
        case .count: break
        case .countAndSummarize(let delay):
            Task {
                // A clock that is read a little early would find the window still open.
                try? await Task.sleep(for: .seconds(delay + 0.01))
                await summarize()
            }
        }
    }

    private func summarize() async {
        let now = seconds
        for summary in limiter.withLock({ $0.summaries(at: now) }) {
            await broker.note(.refused, app: summary.app, detail: summary.detail)
        }
    }

    private var seconds: Double { (.now - start) / .seconds(1) }
}

/// Keeps an app that is refused again and again from filling the log. It admits a number of entries a minute for each app and reason, and then
/// one entry that counts the rest. Pure: the caller passes the time, in seconds of a clock that never goes back.
package struct RefusalLimiter: Sendable {
    /// An app and a reason.
    private struct Key: Hashable {
        let app: String
        let code: String
    }

    private struct Window {
        let beganAt: Double
        var admitted = 0
        var suppressed = 0
    }

    /// What to do with a refusal.
    package enum Verdict: Sendable, Equatable {
        case log
        /// It is counted, like others before it in this minute.
        case count
        /// It is the first that is only counted. Ask ``RefusalLimiter/summaries(at:)`` after so many seconds.
        case countAndSummarize(after: Double)
    }

    /// The refusals of an app and a reason that were only counted, in a minute that is over.
    package struct Summary: Sendable, Equatable {
        package let app: String
        package let code: String
        package let count: Int

        /// What the log says of it.
        package var detail: String { "\(code) … and \(count) more" }
    }

    /// The length of a window, in seconds.
    static let window = 60.0
    /// How many pairs of app and reason have a window of their own. Callers make up names at no cost, so all further pairs share one
    /// window.
    static let keys = 1000
    /// The name in the log for the pairs that share a window.
    static let others = "other apps"

    private let limit: Int
    private var windows: [Key: Window] = [:]

    /// - Parameter limit: entries a minute for each app and reason.
    package init(limit: Int = 10) { self.limit = limit }

    /// Takes note of a refusal.
    package mutating func note(app: String, code: String, at now: Double) -> Verdict {
        if windows.count >= Self.keys { forgetQuietWindows(at: now) }
        var key = Key(app: app, code: code)
        if windows[key] == nil, windows.count >= Self.keys { key = Key(app: Self.others, code: "") }
        var current = windows[key] ?? Window(beganAt: now)
        // A window that is over goes on until its summary was taken.
        if isOver(current, at: now), current.suppressed == 0 { current = Window(beganAt: now) }
        defer { windows[key] = current }
        if current.admitted < limit {
            current.admitted += 1
            return .log
        }
        current.suppressed += 1
        guard current.suppressed == 1 else { return .count }
        return .countAndSummarize(after: max(0, current.beganAt + Self.window - now))
    }

    /// The summaries of the windows that are over. Forgets those windows.
    package mutating func summaries(at now: Double) -> [Summary] {
        let over = windows.filter { isOver($0.value, at: now) }
        for key in over.keys { windows[key] = nil }
        return over.filter { $0.value.suppressed > 0 }
            .map { Summary(app: $0.key.app, code: $0.key.code, count: $0.value.suppressed) }
            .sorted { ($0.app, $0.code) < ($1.app, $1.code) }
    }

    private mutating func forgetQuietWindows(at now: Double) {
        windows = windows.filter { $0.value.suppressed > 0 || !isOver($0.value, at: now) }
    }

    private func isOver(_ window: Window, at now: Double) -> Bool { now >= window.beganAt + Self.window }
}

/// Bounds a text of another process. It counts Unicode scalars, because one character may have any length.
extension String {
    /// At most so many Unicode scalars of it.
    func shortened(to length: Int) -> String { String(String.UnicodeScalarView(unicodeScalars.prefix(length))) }

    /// The same without line breaks and control characters.
    func forLog(_ length: Int) -> String {
        let kept = unicodeScalars.prefix(length).map { scalar -> Unicode.Scalar in
            switch scalar.properties.generalCategory {
            case .control, .lineSeparator, .paragraphSeparator: "\u{FFFD}"
            default: scalar
            }
        }
        return String(String.UnicodeScalarView(kept))
    }
}
