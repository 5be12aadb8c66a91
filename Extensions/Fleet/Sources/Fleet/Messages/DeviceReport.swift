package import Basics

/// A device's state, as its agent reports it. Contains no person's name.
package struct DeviceReport: Sendable, Hashable {
    /// The highest orders that were carried out.
    package struct Seen: Sendable, Hashable {
        package var all: UInt64 = 0
        package var own: UInt64 = 0

        package init(all: UInt64 = 0, own: UInt64 = 0) { (self.all, self.own) = (all, own) }

        package subscript(_ scope: OrderScope) -> UInt64 {
            get { scope == .all ? all : own }
            set { if scope == .all { all = newValue } else { own = newValue } }
        }
    }

    package enum Outcome: String, Sendable, Hashable {
        case signedOut = "signed-out"
        case nobody
        case sessionOver = "session-over"
        /// The broker does not permit the agent to sign out the user.
        case refused
    }

    /// The result of the highest order.
    package struct Result: Sendable, Hashable {
        package let order: UInt64
        package let outcome: Outcome
        /// The newest session that is over.
        package let ended: UInt64

        package init(order: UInt64, outcome: Outcome, ended: UInt64) {
            (self.order, self.outcome, self.ended) = (order, outcome, ended)
        }
    }

    /// The cleanups after one session, by the apps' receipts.
    package struct Round: Sendable, Hashable {
        package struct Debt: Sendable, Hashable {
            package let app: String
            /// `owed`, `told`, `begun` or `failed`.
            package let progress: String

            package init(app: String, progress: String) { (self.app, self.progress) = (app, progress) }
        }

        /// An app's progress through the round, for display only.
        package struct Step: Sendable, Hashable {
            package let app: String
            /// As in `Debt`; or `finished`, `waived`, `enforced`.
            package let progress: String
            /// Milliseconds from the end of the session to each report of the app; `nil` before that report.
            package let told: UInt64?
            package let begun: UInt64?
            package let finished: UInt64?

            package init(app: String, progress: String, told: UInt64?, begun: UInt64?, finished: UInt64?) {
                (self.app, self.progress) = (app, progress)
                (self.told, self.begun, self.finished) = (told, begun, finished)
            }

            /// An upper bound of its bytes in a report.
            package var size: Int { app.utf8.count + 120 }
        }

        package let session: UInt64
        /// The number of apps that have sent their receipt.
        package let finished: UInt64
        /// The number of apps whose cleanup the device's administrator has waived.
        package var waived: UInt64 = 0
        /// The number of apps that the device stopped before deleting their data.
        package var enforced: UInt64 = 0
        /// The apps with a pending cleanup, or the first of them.
        package private(set) var owing: [Debt]
        /// The number of further apps with a pending cleanup.
        package var more: UInt64 = 0
        /// When the session ended, in seconds since 1970 by the device's clock; `nil` if the device does not report it.
        package var ended: Double?
        /// The steps of some apps, pending ones first.
        package var steps: [Step] = []

        package init(session: UInt64, finished: UInt64, owing: [Debt]) {
            (self.session, self.finished, self.owing) = (session, finished, owing)
        }

        package var owes: UInt64 { UInt64(owing.count) + more }

        /// Keeps this many names of pending apps; the others still count.
        mutating func shorten(to count: Int) {
            more += UInt64(max(0, owing.count - count))
            owing = Array(owing.prefix(count))
        }
    }

    /// The mode while the device's broker does not respond. Such a report proves no cleanup.
    package static let unknownMode = "unknown"
    /// The limits of a report, which keep it below ``FleetEvent/largest``.
    package static let (mostRounds, mostDebts, mostProblems, longestText) = (16, 40, 8, 200)
    /// The most apps in a round, so that the sum over a fleet does not overflow whatever the devices report.
    package static let mostApps: UInt64 = 1_000_000
    /// In characters.
    static let longestProgress = 20
    /// The longest name of an app, in bytes; see ``name(_:)``.
    static let longestName = 160
    /// The most steps in a report, and their most bytes.
    package static let (mostSteps, mostStepBytes) = (40, 3000)

    package var seen = Seen()
    package var result: Result?
    /// `shared`, `personal` or ``unknownMode``.
    package var mode = unknownMode
    /// The epoch of the open session.
    package var session: UInt64?
    /// The open rounds, and the last round that an order asked for.
    package var rounds: [Round] = []
    /// The seconds without contact after which the device signs out by itself.
    package var contactTimeout: UInt64?
    package var isClockSynchronised = false
    /// When the device's certificate ends, in seconds since 1970.
    package var certificateEnd: Double?
    /// Grows with each report of the device.
    package var sequence: UInt64 = 0
    package var problems: [String] = []

    package init() {}

    /// The name of an app in reports: the broker's key, made printable. An app without a manifest chooses its own key
    /// of up to 770 characters. A longer name is truncated and gets a hash, which tells it from others.
    package static func name(_ key: String) -> String {
        // Truncates the printable form, because the replacement of an invisible character may have more bytes.
        let shown = key.printable(.max)
        guard shown.utf8.count > longestName else { return shown }
        // FNV-1a. After a deliberate collision both apps appear under one name, and both pending cleanups count.
        let sum = key.utf8.reduce(0xCBF2_9CE4_8422_2325 as UInt64) { ($0 ^ UInt64($1)) &* 0x100_0000_01B3 }
        var (name, bytes) = (String.UnicodeScalarView(), 0)
        for scalar in shown.unicodeScalars {
            bytes += UTF8.width(scalar)
            guard bytes <= longestName - 20 else { break }
            name.append(scalar)
        }
        return "\(String(name))…\(String(sum, radix: 16))"
    }

    /// A smaller report if this one exceeds the size of a message: first without steps, then with fewer names of
    /// pending apps, which still count, and with shorter problems.
    func fitted() -> DeviceReport {
        // Leaves room for the envelope.
        let most = FleetEvent.largest - 1024
        var report = self
        let isTooLarge = { (report: DeviceReport) in report.json.text.utf8.count > most }
        guard isTooLarge(report) else { return report }
        for index in rounds.indices { report.rounds[index].steps = [] }
        for debts in [10, 3, 0] where isTooLarge(report) {
            for index in rounds.indices { report.rounds[index].shorten(to: debts) }
        }
        if isTooLarge(report) { report.problems = problems.map { $0.printable(20) } }
        return report
    }
}

// MARK: JSON

extension DeviceReport {
    package var json: JSONValue {
        var members: [String: JSONValue] = [
            "seen": .object(["all": .number(seen.all), "own": .number(seen.own)]), "mode": .string(mode),
            "session": session.map { .object(["epoch": .number($0)]) } ?? .null,
            "rounds": .array(rounds.map(\.json)), "clockSynchronised": .boolean(isClockSynchronised),
            "sequence": .number(sequence), "problems": .array(problems.map { .string($0) }),
        ]
        if let result {
            members["result"] = .object([
                "order": .number(result.order), "outcome": .string(result.outcome.rawValue),
                "ended": .number(result.ended),
            ])
        }
        if let contactTimeout { members["contactTimeout"] = .number(contactTimeout) }
        if let certificateEnd { members["certificateEnd"] = .number(certificateEnd) }
        return .object(members)
    }

    package init(_ json: JSONValue) throws(FleetRefusal) {
        guard let seen = json["seen"] else { throw FleetRefusal("it lacks “seen”") }
        self.seen = Seen(all: try seen.whole("all"), own: try seen.whole("own"))
        if let result = json["result"], result != .null {
            guard let outcome = result["outcome"]?.string.flatMap(Outcome.init(rawValue:)) else {
                throw FleetRefusal("“outcome” has an unknown value")
            }
            self.result = Result(order: try result.whole("order"), outcome: outcome, ended: try result.whole("ended"))
        }
        mode = try json.words("mode", atMost: 20)
        if let session = json["session"], session != .null { self.session = try session.whole("epoch") }
        guard let rounds = json["rounds"]?.array, rounds.count <= Self.mostRounds else {
            throw FleetRefusal("“rounds” is no list of at most \(Self.mostRounds)")
        }
        for round in rounds { self.rounds.append(try Round(round)) }
        contactTimeout = try json.wholeIfThere("contactTimeout")
        isClockSynchronised = json["clockSynchronised"]?.boolean ?? false
        certificateEnd = Self.time(json["certificateEnd"])
        sequence = try json.whole("sequence")
        problems = (json["problems"]?.strings ?? []).prefix(Self.mostProblems).map { $0.printable(Self.longestText) }
    }

    /// Seconds since 1970, before the year 10000.
    fileprivate static func time(_ json: JSONValue?) -> Double? {
        json?.number.flatMap { (0...253_402_300_799).contains($0) ? $0 : nil }
    }
}

extension DeviceReport.Round {
    var json: JSONValue {
        var members: [String: JSONValue] = [
            "session": .number(session), "finished": .number(finished),
            "owing": .array(owing.map { .object(["app": .string($0.app), "progress": .string($0.progress)]) }),
        ]
        if waived > 0 { members["waived"] = .number(waived) }
        if enforced > 0 { members["enforced"] = .number(enforced) }
        if more > 0 { members["more"] = .number(more) }
        if let ended { members["ended"] = .number(ended) }
        if !steps.isEmpty { members["steps"] = .array(steps.map(\.json)) }
        return .object(members)
    }

    /// An app with an unreadable entry counts as pending, so that the other entries remain usable.
    init(_ json: JSONValue) throws(FleetRefusal) {
        guard let owing = json["owing"]?.array else { throw FleetRefusal("“owing” is no list") }
        let debts = owing.prefix(DeviceReport.mostDebts).compactMap { entry -> Debt? in
            guard let app = entry["app"]?.string, let progress = entry["progress"]?.string else { return nil }
            return Debt(app: DeviceReport.name(app), progress: progress.printable(DeviceReport.longestProgress))
        }
        let apps = { (name: String) throws(FleetRefusal) in
            min(try json.wholeIfThere(name) ?? 0, DeviceReport.mostApps)
        }
        session = try json.whole("session")
        finished = min(try json.whole("finished"), DeviceReport.mostApps)
        (waived, enforced) = (try apps("waived"), try apps("enforced"))
        self.owing = debts
        more = try apps("more") + UInt64(owing.count - debts.count)
        ended = DeviceReport.time(json["ended"])
        steps = (json["steps"]?.array ?? []).prefix(DeviceReport.mostSteps).compactMap(Step.init)
    }
}

extension DeviceReport.Round.Step {
    var json: JSONValue {
        var members: [String: JSONValue] = ["app": .string(app), "progress": .string(progress)]
        for (name, time) in [("told", told), ("begun", begun), ("finished", finished)] {
            if let time { members[name] = .number(time) }
        }
        return .object(members)
    }

    /// `nil` for an unreadable step, which is display only.
    init?(_ json: JSONValue) {
        guard let app = json["app"]?.string, let progress = json["progress"]?.string else { return nil }
        self.app = DeviceReport.name(app)
        self.progress = progress.printable(DeviceReport.longestProgress)
        (told, begun) = (json["told"]?.wholeNumber, json["begun"]?.wholeNumber)
        finished = json["finished"]?.wholeNumber
    }
}
