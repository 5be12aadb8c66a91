package import StrictJSON

/// A device's state, as its agent says it. No person's name is in it.
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

    /// What became of an order.
    package enum Outcome: String, Sendable, Hashable {
        case signedOut = "signed-out"
        case nobody
        case sessionOver = "session-over"
        /// The broker does not let the agent sign anybody out.
        case refused
    }

    /// What became of the highest order.
    package struct Result: Sendable, Hashable {
        package let order: UInt64
        package let outcome: Outcome
        /// The newest session that is over.
        package let ended: UInt64

        package init(order: UInt64, outcome: Outcome, ended: UInt64) {
            self.order = order
            self.outcome = outcome
            self.ended = ended
        }
    }

    /// The cleanups after one session, by the receipts of the apps.
    package struct Round: Sendable, Hashable {
        package struct Debt: Sendable, Hashable {
            package let app: String
            /// `owed`, `told`, `begun` or `failed`.
            package let progress: String

            package init(app: String, progress: String) { (self.app, self.progress) = (app, progress) }
        }

        /// An app's way through the round, to be drawn. It proves nothing: what counts are receipts and debts.
        package struct Step: Sendable, Hashable {
            package let app: String
            /// As of a debt; or `finished`, `waived`, `enforced`.
            package let progress: String
            /// Milliseconds from the end of the session to each report of the app; `nil` before.
            package let told: UInt64?
            package let begun: UInt64?
            package let finished: UInt64?

            package init(app: String, progress: String, told: UInt64?, begun: UInt64?, finished: UInt64?) {
                (self.app, self.progress) = (app, progress)
                (self.told, self.begun, self.finished) = (told, begun, finished)
            }

            /// How many bytes it has in a report, at the most.
            package var size: Int { app.utf8.count + 120 }
        }

        package let session: UInt64
        /// How many apps have given their receipt.
        package let finished: UInt64
        /// How many an administrator of the device has let off.
        package let waived: UInt64
        /// How many the device has stopped, and has deleted their data in their place.
        package let enforced: UInt64
        /// The apps that owe, or the first of them.
        package let owing: [Debt]
        /// How many more owe.
        package let more: UInt64
        /// When the session ended, in seconds since 1970 by the device's clock; `nil` where the device does not say it.
        package let ended: Double?
        /// The ways of some apps, those that owe first.
        package let steps: [Step]

        package init(
            session: UInt64,
            finished: UInt64,
            waived: UInt64 = 0,
            enforced: UInt64 = 0,
            owing: [Debt],
            more: UInt64 = 0,
            ended: Double? = nil,
            steps: [Step] = []
        ) {
            self.session = session
            self.finished = finished
            self.waived = waived
            self.enforced = enforced
            self.owing = owing
            self.more = more
            self.ended = ended
            self.steps = steps
        }

        package var owes: UInt64 { UInt64(owing.count) + more }
    }

    /// The mode while the device's broker does not answer. Such a report proves nothing.
    package static let unknownMode = "unknown"
    /// The limits of a report, so that it stays below ``FleetEvent/largest``.
    package static let (mostRounds, mostDebts, mostProblems, longestText) = (16, 40, 8, 200)
    /// Seconds since 1970 that a calendar has.
    static let times = 0.0...253_402_300_799
    /// Of how many apps a round can tell, so that the sum over all devices of a fleet is a number, whatever each of them says.
    package static let mostApps: UInt64 = 1_000_000
    /// In characters.
    static let longestProgress = 20
    /// Of an app's name, in bytes; see ``name(_:)``.
    static let longestName = 160
    /// Of all ways of apps together: how many there are, and how many bytes they have.
    package static let (mostSteps, mostStepBytes) = (40, 3000)

    package var seen = Seen()
    package var result: Result?
    /// `shared`, `personal` or ``unknownMode``.
    package var mode = unknownMode
    /// The open session, by its epoch.
    package var session: UInt64?
    /// The rounds that are open, and the last one that an order asked for.
    package var rounds: [Round] = []
    /// After how many seconds without contact the device signs out by itself.
    package var contactTimeout: UInt64?
    package var isClockSynchronised = false
    /// When the device's certificate ends, in seconds since 1970.
    package var certificateEnd: Double?
    /// Grows with each report of the device's.
    package var sequence: UInt64 = 0
    package var problems: [String] = []

    package init() {}

    /// What an app is called in reports: the broker's key of it. An app without a manifest chooses its own, of 770 characters at the most, some of
    /// which no text can hold: what is longer is cut, and gets a number by which it differs from others that begin alike.
    package static func name(_ key: String) -> String {
        // The sign for an invisible character has more bytes than some of those characters: what is cut is the printable form.
        let shown = key.printable(.max)
        guard shown.utf8.count > longestName else { return shown }
        // FNV-1a. Whoever makes two names alike is shown twice under one name, and both debts count.
        let sum = key.utf8.reduce(0xCBF2_9CE4_8422_2325 as UInt64) { ($0 ^ UInt64($1)) &* 0x100_0000_01B3 }
        var (name, bytes) = (String.UnicodeScalarView(), 0)
        for scalar in shown.unicodeScalars {
            bytes += UTF8.width(scalar)
            guard bytes <= longestName - 20 else { break }
            name.append(scalar)
        }
        return "\(String(name))…\(String(sum, radix: 16))"
    }

    /// The same with less in it, where it would be larger than a message may be: without ways of apps, then with fewer names of those that owe, which
    /// still count, and with shorter words of problems.
    func fitted() -> DeviceReport {
        // The envelope has the rest.
        let most = FleetEvent.largest - 1024
        var report = self
        let isTooLarge = { (report: DeviceReport) in report.json.text.utf8.count > most }
        guard isTooLarge(report) else { return report }
        report.rounds = rounds.map { $0.with(debts: $0.owing.count, steps: []) }
        for debts in [10, 3, 0] where isTooLarge(report) {
            report.rounds = rounds.map { $0.with(debts: debts, steps: []) }
        }
        if isTooLarge(report) { report.problems = problems.map { $0.printable(20) } }
        return report
    }
}

extension DeviceReport.Round {
    fileprivate func with(debts count: Int, steps: [Step]) -> Self {
        Self(
            session: session,
            finished: finished,
            waived: waived,
            enforced: enforced,
            owing: Array(owing.prefix(count)),
            more: more + UInt64(owing.count - min(count, owing.count)),
            ended: ended,
            steps: steps
        )
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

    package init(_ json: JSONValue) throws(FleetMessageError) {
        guard let seen = json["seen"] else { throw FleetMessageError("it lacks “seen”") }
        self.seen = Seen(all: try seen.whole("all"), own: try seen.whole("own"))
        if let result = json["result"], result != .null {
            guard let outcome = result["outcome"]?.string.flatMap(Outcome.init(rawValue:)) else {
                throw FleetMessageError("“outcome” is none that is known")
            }
            self.result = Result(order: try result.whole("order"), outcome: outcome, ended: try result.whole("ended"))
        }
        mode = try json.words("mode", atMost: 20)
        if let session = json["session"], session != .null { self.session = try session.whole("epoch") }
        guard let rounds = json["rounds"]?.array, rounds.count <= Self.mostRounds else {
            throw FleetMessageError("“rounds” is no list of at most \(Self.mostRounds)")
        }
        for round in rounds { self.rounds.append(try Round(round)) }
        contactTimeout = try json.wholeIfThere("contactTimeout")
        isClockSynchronised = json["clockSynchronised"]?.boolean ?? false
        certificateEnd = json["certificateEnd"]?.number.flatMap { Self.times.contains($0) ? $0 : nil }
        sequence = try json.whole("sequence")
        problems = (json["problems"]?.strings ?? []).prefix(Self.mostProblems).map { $0.printable(Self.longestText) }
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

    /// An app whose entry cannot be read owes like any other, and keeps nobody from reading the rest.
    init(_ json: JSONValue) throws(FleetMessageError) {
        guard let owing = json["owing"]?.array else { throw FleetMessageError("“owing” is no list") }
        let debts = owing.prefix(DeviceReport.mostDebts).compactMap { entry -> Debt? in
            guard let app = entry["app"]?.string, let progress = entry["progress"]?.string else { return nil }
            return Debt(app: DeviceReport.name(app), progress: progress.printable(DeviceReport.longestProgress))
        }
        let unread = UInt64(owing.count - debts.count)
        self.init(
            session: try json.whole("session"),
            finished: min(try json.whole("finished"), DeviceReport.mostApps),
            waived: min(try json.wholeIfThere("waived") ?? 0, DeviceReport.mostApps),
            enforced: min(try json.wholeIfThere("enforced") ?? 0, DeviceReport.mostApps),
            owing: debts,
            more: min(try json.wholeIfThere("more") ?? 0, DeviceReport.mostApps) + unread,
            ended: json["ended"]?.number.flatMap { DeviceReport.times.contains($0) ? $0 : nil },
            steps: (json["steps"]?.array ?? []).prefix(DeviceReport.mostSteps).compactMap(Step.init)
        )
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

    /// `nil` for one that cannot be read: it proves nothing.
    init?(_ json: JSONValue) {
        guard let app = json["app"]?.string, let progress = json["progress"]?.string else { return nil }
        self.init(
            app: DeviceReport.name(app),
            progress: progress.printable(DeviceReport.longestProgress),
            told: json["told"]?.wholeNumber,
            begun: json["begun"]?.wholeNumber,
            finished: json["finished"]?.wholeNumber
        )
    }
}
