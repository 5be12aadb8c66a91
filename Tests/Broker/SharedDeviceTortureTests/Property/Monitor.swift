import SharedDeviceBroker

/// What must never be seen. Pure: the caller looks, before and after.
struct Monitor: Sendable {
    /// A state that must not be.
    struct Violation: Error, Hashable, Sendable, CustomStringConvertible {
        let description: String

        init(_ description: String) { self.description = description }
    }

    /// Whether nobody is to be signed in while there is something left of an earlier session.
    let isStrict: Bool
    /// Sessions up to this epoch are of another schedule, and over.
    let base: UInt64

    /// Holds what the apps have against what the broker had on its disk before anybody looked at them, and after.
    ///
    /// Each demand is on what cannot come back: a session that has ended, a duty that is settled, a session that has begun after another.
    /// So it makes no difference how long the looking took.
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

    /// Nobody is signed in, and nobody owes anything: then nothing is left of anybody.
    func checkQuiet(_ sights: [Sight]) throws(Violation) {
        for sight in sights {
            guard let (marker, place) = sight.traces.first else { continue }
            throw Violation("in the end \(sight.app.name) has \(place) of \(marker)")
        }
    }

    /// What an app told of itself, in order: it is told of no earlier change after a later one, and shows nothing that is older than what
    /// it was told of or has shown.
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

/// No token is handed out once its session is over.
struct TokenMonitor: Sendable {
    /// The latest epoch at which each token was first given out.
    private var firstSeen: [String: UInt64] = [:]

    /// - Parameters:
    ///   - before: what was on the broker's disk before the request was made.
    ///   - after: the same, after the answer.
    mutating func granted(
        _ token: String,
        of user: String,
        before: Truth,
        after: Truth
    ) throws(Monitor.Violation) {
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
