/// A device's progress with an order, by its own report.
package enum Standing: Sendable, Hashable {
    /// The session is over, and every app that held data has sent its receipt, except for `waived` apps and for
    /// `enforced` apps, which the device stopped before deleting their data.
    case clean(waived: UInt64, enforced: UInt64 = 0)
    /// No user was signed in, and no cleanup is pending.
    case nobody
    /// The session is over, and the cleanups of these apps are pending.
    case cleaning([DeviceReport.Round.Debt], more: UInt64)
    /// As `cleaning` for over a minute, or an app has failed.
    case stuck([DeviceReport.Round.Debt], more: UInt64)
    /// No usable report since then.
    case unreachable(since: Double?)
    /// The device has never reported.
    case unknown
    /// The device does not carry out the order, with the reason.
    case refused(String)

    /// How long the same cleanups may be pending before the device counts as stuck, in seconds.
    package static let patience = 60.0

    /// Whether the device has carried out the order.
    package var isDone: Bool { rank >= Self.firstDoneRank }

    package var word: String { Self.words[rank] }

    /// The names of the states, from worst to best.
    package static let words = ["unknown", "refused", "unreachable", "stuck", "cleaning", "nobody", "clean"]

    /// The first rank of devices that are done.
    package static let firstDoneRank = 5

    /// The rank, where 0 is the worst.
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

/// The controller's knowledge of a device.
package struct FleetDevice: Sendable, Hashable {
    /// Whether an administrator has listed it.
    package var isListed = false
    package var groups: [String] = []
    /// The highest order for this device alone.
    package var desired: FleetOrder?
    package var report: DeviceReport?
    /// The time of the last report, in seconds since 1970 by the controller's clock.
    package var reportedAt: Double?
    /// The time since which its rounds have not changed.
    package var unchangedSince: Double?
    /// Whether the server reports it as connected; `nil` if it has sent no presence on this connection.
    package internal(set) var isOnline: Bool?
    /// When the controller heard that the device is disconnected, by the controller's clock.
    package internal(set) var awaySince: Double?
    /// The seconds by which the device's clock was off at its last live message.
    package var clockOffset: Double?
    /// The highest number from a clock that was ahead and is corrected; 0 for none. See ``counts(_:sent:now:)``.
    package var leftBehind: UInt64 = 0
    /// The controller's revision at the last change of this device.
    package var changedAt: UInt64 = 0

    package init() {}

    /// The device's progress with an order (FL-13).
    ///
    /// - Parameter highest: the highest number ever issued. A device that has seen a higher one follows another
    ///   controller.
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
        // The device lost power before the sign-out was on its disk.
        if let session = report.session, session <= result.ended {
            return .refused("session \(session), which was over, is open again")
        }
        // Its broker does not respond, so the state of the cleanups is unknown.
        guard report.mode != DeviceReport.unknownMode else { return .unreachable(since: reportedAt) }
        let rounds = report.rounds.filter { $0.session <= result.ended }
        let owing = rounds.flatMap(\.owing)
        let more = rounds.reduce(0) { $0 + $1.more }
        guard owing.isEmpty, more == 0 else {
            // While disconnected, the device cannot report that they have finished.
            if isOnline == false { return .unreachable(since: reportedAt) }
            let isLate = now - (unchangedSince ?? now) > Standing.patience
            return isLate || owing.contains { $0.progress == "failed" }
                ? .stuck(owing, more: more) : .cleaning(owing, more: more)
        }
        if result.order == number, result.outcome == .nobody { return .nobody }
        return .clean(waived: rounds.reduce(0) { $0 + $1.waived }, enforced: rounds.reduce(0) { $0 + $1.enforced })
    }

    /// Whether a report is newer than the last one (FL-15).
    ///
    /// Normally the sequence number decides. It is derived from the device's clock. If a clock was far ahead, and the
    /// agent's file is lost, the numbers start below the old ones once the clock is right. Such a lower number counts
    /// if the last number is ahead of the controller's clock and the new one is not, and the message is live, with a
    /// right time after the arrival of the last report. Afterwards, numbers up to the abandoned one count only in a
    /// live message with the right time. `sent` is the time in the message; `nil` for a retained one.
    func counts(_ new: DeviceReport, sent: Double?, now: Double) -> Bool {
        guard let report else { return true }
        let isRight = sent.map { abs($0 - now) <= ControllerState.clockTolerance } ?? false
        let ahead = AgentState.sequence(by: now + ControllerState.clockTolerance)
        if new.sequence > report.sequence { return new.sequence > leftBehind || isRight }
        guard isRight, let sent, report.sequence > ahead, new.sequence <= ahead else { return false }
        // The second condition covers a controller's clock that was set back.
        return reportedAt.map { sent > $0 || $0 > now } ?? true
    }

    /// The time by which the reported session ends by itself if the device keeps running, in seconds since 1970; `nil`
    /// if unknown. The device counts from its last heartbeat, which came before the server reported it as disconnected.
    /// A device whose broker does not respond or denies the sign-out does not end its session.
    package var endsBy: Double? {
        guard isOnline == false, let awaySince, let report, report.session != nil, report.result?.outcome != .refused,
            report.mode != DeviceReport.unknownMode, let timeout = report.contactTimeout
        else { return nil }
        return awaySince + Double(timeout)
    }
}
