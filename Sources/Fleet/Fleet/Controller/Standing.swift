/// How far a device is with an order, by its own report.
package enum Standing: Sendable, Hashable {
    /// The session is over, and every app that held data has given its receipt. So many were waived.
    case clean(waived: UInt64)
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
    /// Whether the server says that it is connected; `nil` where the server has said nothing.
    package var isOnline: Bool?
    /// By how many seconds the device's clock was off with its last live message.
    package var clockOffset: Double?
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
        return isNobody ? .nobody : .clean(waived: rounds.reduce(0) { $0 + $1.waived })
    }
}
