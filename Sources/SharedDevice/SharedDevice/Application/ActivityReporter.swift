import DBusTransport
import Synchronization

/// Tells the broker that somebody is using the device, now and then.
final class ActivityReporter: Sendable {
    /// The least time between two words of it.
    static let interval = Duration.seconds(10)

    private let last = Locked<ContinuousClock.Instant?>(nil)

    /// Whether it is time to tell; who is told yes, tells.
    func isDue(at now: ContinuousClock.Instant = .now) -> Bool {
        last.withLock { last in
            if let last, now - last < Self.interval { return false }
            last = now
            return true
        }
    }
}

extension SharedDeviceApplication {
    /// Somebody is using this app: to be called at a touch, a key, a scan. Where the device signs out after a time of inactivity, this makes that
    /// time begin anew; signing in and asking for a token do so too, asking for the current account does not.
    ///
    /// Returns at once, and may be called as often as there is reason to: the broker is told at most every ten seconds, and a broker that
    /// does not answer is not told. Choose no timeout for a device that is not well above that.
    public func noteActivity() {
        guard activity.isDue() else { return }
        Task { [broker, identifier] in
            // Nothing depends on one report: the next comes with the next touch.
            _ = try? await broker.call(
                .reportActivity,
                ["application": .string(identifier)],
                attempted: "report activity"
            )
        }
    }
}
