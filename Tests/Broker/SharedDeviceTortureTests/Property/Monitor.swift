import BrokerCore

/// The safety properties. The monitor is pure: its caller inspects the device and reads the disk before and after.
struct Monitor: Sendable {
    struct Violation: Error, Hashable, Sendable, CustomStringConvertible {
        let description: String

        init(_ description: String) { self.description = description }
    }

    /// Whether a session may open only after all data of earlier sessions is gone.
    let isStrict: Bool
    /// Sessions up to this epoch belong to an earlier schedule and are over.
    let base: UInt64

    /// Compares the data of the apps with the content of the broker's disk before and after the inspection.
    ///
    /// Each check relies on facts that cannot be undone: a session that has ended, a settled debt, or a session that
    /// has begun after another. So the result does not depend on how long the inspection took.
    func check(before: Truth, _ sights: [Sight], after: Truth) throws(Violation) {
        guard before.epoch <= after.epoch else {
            throw Violation("the epoch went back from \(before.epoch) to \(after.epoch)")
        }
        for sight in sights {
            for (marker, place) in sight.traces { try check(before, sight.app, marker, place, after) }
        }
    }

    private func check(
        _ before: Truth,
        _ app: Participant,
        _ marker: Marker,
        _ place: String,
        _ after: Truth
    ) throws(Violation) {
        let what = "\(app.name) has \(place) of \(marker)"
        if isStrict, let open = before.open, marker.epoch < open.epoch {
            throw Violation("\(what), and \(open.session.user ?? "somebody")'s session \(open.epoch) is open")
        }
        if marker.epoch <= base { throw Violation("\(what), which was over before this schedule began") }
        if let session = before.sessions[marker.epoch], !session.isOpen, !session.debtors.contains(app) {
            throw Violation("\(what), which is over, and the ledger names no debt of it: \(session)")
        }
        guard after.sessions[marker.epoch]?.apps.keys.contains(app) == true else {
            throw Violation("\(what), and the ledger does not know that it was given the account")
        }
    }

    /// Checks that no data is left when the device is signed out and no cleanup is owed.
    func checkQuiet(_ sights: [Sight]) throws(Violation) {
        for sight in sights {
            guard let (marker, place) = sight.traces.first else { continue }
            throw Violation("in the end \(sight.app.name) has \(place) of \(marker)")
        }
    }

    /// Checks the app's journal. The epochs of its changes must not decrease. The app must not show a session that is
    /// older than an earlier line of the journal.
    func checkJournal(_ lines: [String], of app: Participant) throws(Violation) {
        var (shown, told): (UInt64, UInt64) = (0, 0)
        for line in lines {
            let words = line.split(separator: " ")
            guard words.count >= 2, words[0] == "show" || words[0] == "change", let epoch = UInt64(words[1]) else {
                continue
            }
            let latest = words[0] == "show" ? max(shown, told) : told
            guard epoch >= latest else { throw Violation("\(app.name): “\(line)” after epoch \(latest)") }
            if words[0] == "show" { shown = epoch } else { told = epoch }
        }
    }
}

/// Checks that tokens are handed out only during their session.
struct TokenMonitor: Sendable {
    /// For each token, the latest epoch at which it may first have been handed out.
    private var firstSeen: [String: UInt64] = [:]

    /// - Parameters:
    ///   - before: the content of the broker's disk before the request.
    ///   - after: the content after the response.
    mutating func granted(_ token: String, of user: String, before: Truth, after: Truth) throws(Monitor.Violation) {
        if before.epoch == after.epoch, after.open?.session.user != user {
            throw Monitor.Violation(
                "a token of \(user) was handed out at epoch \(after.epoch), where \(user) is not signed in"
            )
        }
        if let epoch = firstSeen[token], epoch < before.epoch {
            throw Monitor.Violation(
                "a token of \(user) from epoch \(epoch) was handed out again at epoch \(before.epoch)"
            )
        }
        if firstSeen[token] == nil { firstSeen[token] = after.epoch }
    }
}
