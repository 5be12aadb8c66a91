import FoundationEssentials
import SharedDevice

/// A round of cleanups as rows on one time axis, until the last report, or until now while an app owes its cleanup.
/// Pure.
struct Waterfall {
    struct Row {
        let name: String
        /// The progress of the app, with its sign.
        let state: String
        let style: ScreenLine.Style
        let app: CleanupReport.App
    }

    let rows: [Row]
    /// The length of the axis in seconds.
    let length: Double

    /// - Parameter name: Returns the displayed name of an app.
    init(_ round: CleanupReport, at now: Date, name: (String) -> String) {
        let elapsed = max(0, now.timeIntervalSince(round.endedAt))
        let named = round.apps.map { (name: name($0.identifier), app: $0) }
        // Apps that owe a cleanup come first.
        let sorted = named.sorted {
            let (one, other) = ($0.app.progress.isSettled, $1.app.progress.isSettled)
            return one != other ? other : $0.name < $1.name
        }
        rows = sorted.map { name, app in
            let time = app.progress == .finished ? app.finishedAfter.map { " after \(Words.span($0))" } : nil
            let words = app.progress.sign.words + (time ?? "")
            let state = app.progress.isSettled || app.isRunning ? words : "\(words), does not run"
            return Row(name: name, state: state, style: app.progress.sign.style, app: app)
        }
        let times = round.apps.flatMap { [$0.toldAfter, $0.begunAfter, $0.finishedAfter] }.compactMap(\.self)
        length = max(0.01, round.owing.isEmpty ? 0 : elapsed, times.max() ?? 0)
    }

    /// `·` until the app was told of the sign-out, `╌` until it began, `━` until it ended, and a letter at each event.
    func bar(of row: Row, columns: Int) -> String {
        let app = row.app
        // Clamped before the conversion, because times from another process may be of any size.
        let column = { (time: Double) in
            length > 0 ? min(columns - 1, Int(min(1, max(0, time / length)) * Double(columns))) : 0
        }
        let end = app.progress.isSettled ? app.finishedAfter ?? app.begunAfter ?? app.toldAfter ?? 0 : length
        var cells = (0...column(end)).map { cell -> Character in
            if let begun = app.begunAfter, column(begun) <= cell { return "━" }
            if let told = app.toldAfter, column(told) <= cell { return "╌" }
            return "·"
        }
        var marks: [(letter: Character, time: Double)] = []
        if let told = app.toldAfter { marks.append(("T", told)) }
        if let begun = app.begunAfter { marks.append(("B", begun)) }
        if let ended = app.finishedAfter, let letter = app.progress.sign.letter { marks.append((letter, ended)) }
        // Letters for the same column are placed next to each other, in order.
        var places = marks.map { column($0.time) }
        for index in places.indices.dropFirst() { places[index] = max(places[index], places[index - 1] + 1) }
        for index in places.indices.reversed() {
            places[index] = min(places[index], index + 1 < places.count ? places[index + 1] - 1 : columns - 1)
        }
        for (place, mark) in zip(places, marks) where place >= 0 {
            while cells.count <= place { cells.append("━") }
            cells[place] = mark.letter
        }
        return String(cells)
    }

    static func summary(of round: CleanupReport, at now: Date) -> (text: String, style: ScreenLine.Style) {
        let (all, owing) = (round.apps.count, round.owing)
        let last = Words.span(round.apps.compactMap(\.finishedAfter).max() ?? 0)
        guard owing.isEmpty else {
            let time = Words.span(max(0, now.timeIntervalSince(round.endedAt)))
            let failed = owing.count { $0.progress == .failed }
            var text = "\(owing.count) of \(all) \(owing.count == 1 ? "owes" : "owe") a cleanup for \(time)"
            if failed > 0 { text += "; \(failed) failed" }
            if round.outcome == .expired { text += "; the next sign-in no longer waits for them" }
            let isBad = failed > 0 || round.outcome == .expired
            return ("\(failed > 0 ? "✗" : "◑") \(text).", isBad ? .bad : .waits)
        }
        let (waived, enforced) = (
            round.apps.count { $0.progress == .waived }, round.apps.count { $0.progress == .enforced }
        )
        if all == 0 { return ("✓ No app held data.", .good) }
        if waived > 0 { return ("W Closed after \(last): \(waived) of \(all) waived by an administrator.", .bad) }
        if enforced > 0 { return ("E Complete after \(last): \(enforced) of \(all) stopped, data deleted.", .bad) }
        return ("✓ Every app reported its data deleted, the last one after \(last).", .good)
    }
}

extension CleanupReport.Progress {
    /// How a waterfall shows it: words, their style, and the letter of the event that ended the cleanup.
    fileprivate var sign: (words: String, style: ScreenLine.Style, letter: Character?) {
        switch self {
        case .owed: ("○ has not heard of it", .waits, nil)
        case .told: ("◔ was told", .waits, nil)
        case .begun: ("◑ cleans up", .waits, nil)
        case .failed: ("✗ failed", .bad, "!")
        case .finished: ("✓ clean", .good, "F")
        case .waived: ("W waived", .bad, "W")
        case .enforced: ("E stopped, data deleted", .bad, "E")
        }
    }
}
