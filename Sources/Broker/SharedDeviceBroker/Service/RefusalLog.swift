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
    ///   - app: what the refused one calls itself; of any length.
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
