/// How far a device is with an order, by its own report.
package enum Standing: Sendable, Hashable {
    /// The session is over, and every app that held data has given its receipt. So many were waived, and of so many the device has stopped the app and
    /// deleted the data in its place.
    case clean(waived: UInt64, enforced: UInt64 = 0)
    /// Nobody was signed in, and nothing is owed.
    case nobody
    /// The session is over, and these apps owe.
    case cleaning([DeviceReport.Round.Debt], more: UInt64)
    /// The same for over a minute, or an app has failed.
    case stuck([DeviceReport.Round.Debt], more: UInt64)
    /// No report that could count, since then.
    case unreachable(since: Double?)
    /// The device has never reported.
    case unknown
    /// The device does not do it, and why.
    case refused(String)

    /// How long apps may owe the same before the device counts as stuck, in seconds.
    package static let patience = 60.0

    /// Whether the device has done what the order asked. Nothing else counts.
    package var isDone: Bool {
        switch self {
        case .clean, .nobody: true
        case .cleaning, .stuck, .unreachable, .unknown, .refused: false
        }
    }

    /// The word for it.
    package var word: String { Self.words[rank] }

    /// The words, the worst first.
    package static let words = ["unknown", "refused", "unreachable", "stuck", "cleaning", "nobody", "clean"]

    /// The ranks from here on are of devices that are done.
    package static let firstDoneRank = 5

    /// From the worst, 0, to the best.
    package var rank: Int {
        switch self {
        case .unknown: 0
        case .refused: 1
        case .unreachable: 2
        case .stuck: 3
        case .cleaning: 4
        case .nobody: 5
        case .clean: 6
        }
    }
}

/// What the controller knows of a device.
package struct FleetDevice: Sendable, Hashable {
    /// Whether an administrator has listed it.
    package var isListed = false
    package var groups: [String] = []
    /// The highest order for this device alone.
    package var desired: FleetOrder?
    package var report: DeviceReport?
    /// When it last reported, in seconds since 1970 by the controller's clock.
    package var reportedAt: Double?
    /// Since when its rounds are as they are.
    package var unchangedSince: Double?
    /// Whether the server says that it is connected; `nil` where the server has said nothing since it accepted the controller.
    package internal(set) var isOnline: Bool?
    /// Since when the server says that it is not, by the controller's clock: when that was heard.
    package internal(set) var awaySince: Double?
    /// By how many seconds the device's clock was off with its last live message.
    package var clockOffset: Double?
    /// The highest number of a report that a clock gave which was ahead, and was put right since; 0 where there is none. See ``counts(_:sent:now:)``.
    package var leftBehind: UInt64 = 0
    /// The controller's revision as of the last change of this.
    package var changedAt: UInt64 = 0

    package init() {}

    /// How far the device is with an order (FL-13).
    ///
    /// - Parameter highest: the highest number that was ever given. Who has seen a higher one obeys somebody else.
    package func standing(_ number: UInt64, _ scope: OrderScope, highest: UInt64, now: Double) -> Standing {
        guard let report else { return .unknown }
        if max(report.seen.all, report.seen.own) > highest {
            return .refused("it has seen an order that this controller never gave")
        }
        guard report.seen[scope] >= number, let result = report.result, result.order >= number else {
            if let result = report.result, result.outcome == .refused, result.order >= number {
                return .refused(report.problems.first ?? "its broker does not permit it")
            }
            return .unreachable(since: reportedAt)
        }
        // It was not on the disk when the power was cut.
        if let session = report.session, session <= result.ended {
            return .refused("session \(session), which was over, is open again")
        }
        // Its broker does not answer: nobody knows what the apps have done.
        guard report.mode != DeviceReport.unknownMode else { return .unreachable(since: reportedAt) }
        let rounds = report.rounds.filter { $0.session <= result.ended }
        let owing = rounds.flatMap(\.owing)
        let more = rounds.reduce(0) { $0 + $1.more }
        guard owing.isEmpty, more == 0 else {
            // Away, it cannot say whether they still do.
            if isOnline == false { return .unreachable(since: reportedAt) }
            let isLate = now - (unchangedSince ?? now) > Standing.patience
            return isLate || owing.contains { $0.progress == "failed" }
                ? .stuck(owing, more: more) : .cleaning(owing, more: more)
        }
        let isNobody = result.order == number && result.outcome == .nobody
        if isNobody { return .nobody }
        return .clean(waived: rounds.reduce(0) { $0 + $1.waived }, enforced: rounds.reduce(0) { $0 + $1.enforced })
    }

    /// Whether a report is newer than the last one (FL-15).
    ///
    /// The numbers say so. They come from the device's clock: one that has been far ahead, and lost its agent's file, begins below its own old numbers
    /// once its clock is right. Such a report counts where the last number is ahead of the controller's clock and the new one is not, the message is live,
    /// its time is right, and later than the last report came. What the server had kept, and what it says again, is neither. The numbers that are left
    /// behind, and those below them, then count no more, unless a live message with the right time has them.
    ///
    /// - Parameter sent: the time that the message names; `nil` for one that the server had kept.
    func counts(_ new: DeviceReport, sent: Double?, now: Double) -> Bool {
        guard let report else { return true }
        let isRight = sent.map { abs($0 - now) <= ControllerState.clockTolerance } ?? false
        let ahead = AgentState.sequence(by: now + ControllerState.clockTolerance)
        if new.sequence > report.sequence { return new.sequence > leftBehind || isRight }
        guard isRight, let sent, report.sequence > ahead, new.sequence <= ahead else { return false }
        // Also where the controller's clock was set back.
        return reportedAt.map { sent > $0 || $0 > now } ?? true
    }

    /// When the session that it has reported ends by itself at the latest, if the device runs, in seconds since 1970; `nil` where that cannot be said.
    ///
    /// The device counts from the last heartbeat that it has heard. That was before the server said that the device is away, and so was the last one
    /// that a device heard of which the server has said nothing since. A device that is connected hears heartbeats, and ends nothing by itself; nor does
    /// one whose broker does not answer, or does not let it.
    package var endsBy: Double? {
        guard isOnline == false, let awaySince, let report, report.session != nil, report.result?.outcome != .refused,
            report.mode != DeviceReport.unknownMode, let timeout = report.contactTimeout
        else { return nil }
        return awaySince + Double(timeout)
    }
}
