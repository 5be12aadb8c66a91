import Foundation
import Glibc
import Logging
import SharedDevice

/// Ends sessions that last longer than the administrator allows. Keeps a ``SignOutSchedule`` for the open session, and asks it again at the
/// time that it names.
actor SignOutWatch {
    /// The longest time between a device's waking up and the next look at the schedule.
    private static let longestPause = 60.0
    /// The pause after a sign-out that failed.
    private static let retryPause = 2.0

    private let broker: DeviceBroker
    private let file: ActivityFile
    private let now: @Sendable () -> Date
    private let log: Logger
    private var settings = SignOutSchedule.Settings()
    private var open: (epoch: UInt64, schedule: SignOutSchedule)?
    private var alarm: Task<Void, Never>?
    private var looks: UInt64 = 0
    /// What the file says.
    private var kept = Date.distantPast
    private var hasComplained = false

    init(
        broker: DeviceBroker,
        directory: String,
        log: Logger,
        now: @escaping @Sendable () -> Date = { Date() }
    ) {
        self.broker = broker
        file = ActivityFile(directory: directory)
        self.log = log
        self.now = now
    }

    deinit { alarm?.cancel() }

    /// Puts new settings in force. They apply to the open session too.
    func use(_ settings: SignOutSchedule.Settings) async {
        self.settings = settings
        open?.schedule.settings = settings
        await look()
    }

    /// Somebody is using the device. The next look at the schedule takes it into account.
    func noteActivity() {
        guard open != nil else { return }
        let now = now()
        open?.schedule.noteActivity(at: now)
        // Often enough for timeouts that are a matter of minutes.
        guard abs(now.timeIntervalSince(kept)) >= 1 else { return }
        keep(now)
    }

    /// Asks the schedule about the present session. Called when a session begins or ends.
    func look() async {
        looks += 1
        let number = looks
        let session = await broker.openSession
        // A later look knows more.
        guard number == looks else { return }
        alarm?.cancel()
        alarm = nil
        guard let session else {
            open = nil
            return
        }
        let now = now()
        var schedule: SignOutSchedule
        if let open, open.epoch == session.epoch {
            schedule = open.schedule
        } else {
            // A session of an earlier run goes on from the last time that anybody used the device then; in any other, signing in was that.
            schedule = SignOutSchedule(
                settings: settings,
                calendar: .autoupdatingCurrent,
                startedAt: session.startedAt,
                lastActivity: file.date ?? now
            )
            keep(schedule.lastActivity)
        }
        let decision = schedule.look(at: now)
        open = (session.epoch, schedule)
        switch decision {
        case .look(nil): break
        case .look(let next?): pause(next.timeIntervalSince(now))
        case .signOut(let reason): await signOut(session.epoch, because: reason)
        }
    }

    private func signOut(_ epoch: UInt64, because reason: SignOutSchedule.Reason) async {
        do {
            _ = try await broker.signOut(nil, session: epoch, cause: reason.description)
            log.notice("signed out automatically", metadata: ["reason": "\(reason)"])
        } catch is DeviceRefusal {
            // It is over already.
        } catch {
            log.error("not signed out yet", metadata: ["reason": "\(error)"])
            pause(Self.retryPause)
        }
    }

    private func pause(_ seconds: TimeInterval) {
        let wait = min(Self.longestPause, max(0.01, seconds))
        alarm = Task { [weak self] in
            guard (try? await Task.sleep(for: .seconds(wait))) != nil else { return }
            await self?.look()
        }
    }

    private func keep(_ date: Date) {
        kept = date
        guard let problem = file.write(date), !hasComplained else { return }
        hasComplained = true
        log.warning("a restart will not know of the last activity", metadata: ["reason": "\(problem)"])
    }
}

/// Remembers across restarts when somebody used the device last: the time stamp of an empty file. A power cut loses the last seconds, so that
/// the sign-out comes a little early.
struct ActivityFile: Sendable {
    private let path: String

    init(directory: String) { path = "\(directory)/last-activity" }

    /// `nil` where nobody knows.
    var date: Date? {
        var information = stat()
        guard lstat(path, &information) == 0 else { return nil }
        let stamp = information.st_mtim
        return Date(timeIntervalSince1970: Double(stamp.tv_sec) + Double(stamp.tv_nsec) / 1e9)
    }

    /// - Returns: the reason if it cannot be written, for the log; `nil` if it was.
    func write(_ date: Date) -> String? {
        let file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard file >= 0 else { return "\(path): \(String(cString: strerror(errno)))" }
        defer { close(file) }
        let seconds = date.timeIntervalSince1970.rounded(.down)
        let rest = Int((date.timeIntervalSince1970 - seconds) * 1e9)
        let stamp = timespec(tv_sec: Int(seconds), tv_nsec: rest)
        guard futimens(file, [stamp, stamp]) == 0 else { return "\(path): \(String(cString: strerror(errno)))" }
        return nil
    }
}
