import DeviceConfiguration

/// The timeline of one sign-out as SVG: a lane for each process, from the sign-out to the last receipt, or, where an app never sent one, to
/// the end of what was seen; below it the meaning of the signs. Pure.
struct TimelineDrawing {
    private static let margin = 12.0
    private static let top = 30.0
    private static let lineHeight = 17.0
    private static let markGap = 20.0
    private static let markHeight = 22.0
    private static let barHeight = 12.0

    private let round: CheckResult.Round
    private let names: AppNames
    private let identifier: String
    private let width: Double
    private let lanes: [String]
    private let begin: Double
    private let end: Double

    /// - Parameters:
    ///   - names: the apps' names.
    ///   - identifier: of the drawing on its page.
    ///   - width: in pixels; the height follows.
    init(_ round: CheckResult.Round, names: AppNames, identifier: String, width: Double) {
        (self.round, self.names, self.identifier, self.width) = (round, names, identifier, width)
        // The drawing ends with the last event of the sign-out, and leaves out later events, such as the next sign-in.
        let receipts: Set<DeviceEvent.Kind> = [.told, .begun, .failed, .finished, .waived, .enforced]
        let last = round.events.last { receipts.contains($0.kind) }?.milliseconds
        let isClean = round.apps.allSatisfy(\.isClean)
        end = max(isClean ? last ?? round.observed : round.observed, last ?? 0, 1) * 1.04
        // What was done to an app right before the sign-out belongs to it.
        let faults = round.events.filter { [.stopped, .killed].contains($0.kind) }.map(\.milliseconds)
        begin = min(0, faults.filter { [end] in $0 > -0.25 * end }.min() ?? 0) - end * 0.03
        let (begin, end) = (begin, end)
        let others = [DeviceEvent.deviceLane, DeviceEvent.brokerLane, DeviceEvent.busLane].filter { lane in
            round.events.contains { $0.lane == lane && (begin...end).contains($0.milliseconds) }
        }
        lanes = others + round.apps.map(\.identifier)
    }

    /// The drawing. On a page of its own it brings its colours; on a page with a style it has those of the page.
    func svg(_ palette: Palette? = nil) -> String {
        var y = Self.top
        var parts: [String] = []
        for lane in lanes { parts += drawing(of: lane, &y) }
        let bottom = y
        parts += legend(&y)
        let size = "\(Markup.number(width)) \(Markup.number(y + 4))"
        var head = [
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 \(size)\" role=\"group\" "
                + "aria-label=\"Timeline of the sign-out of \(Markup.escaped(round.user))\">",
            "<defs><pattern id=\"\(identifier)\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
                + "patternTransform=\"rotate(45)\"><rect class=\"hatch\" width=\"2\" height=\"6\"/></pattern></defs>",
        ]
        if let palette {
            head.append("<style>svg { \(palette.properties) }\n\(TimelineStyle.rules)</style>")
            head.append("<rect width=\"100%\" height=\"100%\" rx=\"6\" style=\"fill: var(--paper)\"/>")
        }
        return (head + ticks(bottom) + parts + ["</svg>"]).joined(separator: "\n")
    }

    // MARK: Time

    private func x(_ milliseconds: Double) -> Double {
        let clipped = min(max(milliseconds, begin), end)
        return Self.margin + (clipped - begin) / (end - begin) * (width - 2 * Self.margin)
    }

    private func ticks(_ bottom: Double) -> [String] {
        let step = Self.step(for: (end - begin) * 76 / width)
        return stride(from: 0, through: end, by: step).flatMap { time -> [String] in
            let place = x(time)
            let line =
                "<line class=\"\(time == 0 ? "origin" : "tick")\" x1=\"\(Markup.number(place))\" y1=\"\(Markup.number(Self.top - 8))\" "
                + "x2=\"\(Markup.number(place))\" y2=\"\(Markup.number(bottom - 6))\"/>"
            // A label that the edge would cut says nothing that its neighbours do not.
            guard place > 18, place < width - 26 || time == 0 else { return [line] }
            return [
                line,
                "<text class=\"time\" x=\"\(Markup.number(max(place, 20)))\" y=\"\(Markup.number(Self.top - 14))\">\(Self.label(time))</text>",
            ]
        }
    }

    /// The next larger number of the form 1, 2 or 5 and zeros.
    private static func step(for wanted: Double) -> Double {
        var power = 0.1
        while power * 10 <= wanted, power < 1e12 { power *= 10 }
        return [1.0, 2, 5, 10].map { $0 * power }.first { $0 >= wanted } ?? power * 10
    }

    private static func label(_ time: Double) -> String {
        time >= 10_000 ? "\(Int((time / 1000).rounded())) s" : Text.milliseconds(time)
    }

    // MARK: Lanes

    private func drawing(of lane: String, _ y: inout Double) -> [String] {
        let events = round.events.filter { $0.lane == lane }
        let shown = events.filter { (begin...end).contains($0.milliseconds) }
        let app = round.apps.first { $0.identifier == lane }
        var parts = label(lane, app, &y)
        let capacity = max(1, Int((width - 2 * Self.margin) / Self.markGap))
        let rows = stride(from: 0, to: shown.count, by: capacity).map {
            Array(shown[$0..<min($0 + capacity, shown.count)])
        }
        let bar = y + Double(rows.count) * Self.markHeight + (rows.isEmpty ? 0 : 6)
        let middle = bar + Self.barHeight / 2
        parts.append(line("base", Self.margin, middle, width - Self.margin, middle))
        if let app, app.heardAfter != nil || !app.isClean {
            let heard = app.heardAfter ?? end
            parts.append(self.bar(.owed, 0, heard, bar, lane, isOpen: app.heardAfter == nil))
            if app.heardAfter != nil {
                let done = app.isClean ? app.cleanedAfter ?? end : end
                parts.append(self.bar(.cleaning, app.begunAfter ?? heard, done, bar, lane, isOpen: !app.isClean))
            }
        }
        for (from, to) in absences(events) {
            parts.append(self.bar(.away, from, to, bar, lane, isOpen: to == end && app?.isClean == false))
        }
        for row in rows {
            let wanted = row.map { x($0.milliseconds) }
            let places = MarkSpacing.spread(
                wanted,
                gap: Self.markGap,
                within: Self.margin...max(Self.margin, width - Self.margin)
            )
            let height = y + Self.markHeight / 2
            for place in zip(wanted, places) { parts.append(line("stem", place.0, middle, place.1, height + 8)) }
            parts += zip(row, places).map { mark($0, $1, height) }
            y += Self.markHeight
        }
        y = bar + Self.barHeight + 14
        return parts
    }

    /// The whole name, and for an app what became of it.
    private func label(_ lane: String, _ app: CheckResult.Round.App?, _ y: inout Double) -> [String] {
        let length = Int((width - 2 * Self.margin) / 7)
        let name = Text.printable(names[lane])
        let state = app.map { app in
            app.isClean
                ? app.cleanedAfter.map { "✓ clean after \(Text.milliseconds($0))" } ?? app.summary
                : "✗ not clean: \(app.summary)"
        }
        let style = app?.isClean == true ? "good" : "bad"
        var lines = Self.wrapped(name, length).map { (text: $0, style: "name") }
        var more = state.map { Self.wrapped($0, length) } ?? []
        var parts: [String] = []
        for (index, line) in lines.enumerated() {
            y += Self.lineHeight
            var text = "<tspan class=\"name\">\(Markup.escaped(line.text))</tspan>"
            // What became of it follows the name, if it has room there.
            if index == lines.count - 1, more.count == 1, line.text.count + more[0].count + 2 <= length {
                text += "<tspan class=\"state \(style)\" dx=\"10\">\(Markup.escaped(more.removeFirst()))</tspan>"
            }
            parts.append(self.text(text, y))
        }
        lines = more.map { ($0, "state \(style)") }
        for line in lines {
            y += Self.lineHeight
            parts.append(text("<tspan class=\"\(line.style)\">\(Markup.escaped(line.text))</tspan>", y))
        }
        y += 6
        return parts
    }

    private func text(_ content: String, _ y: Double) -> String {
        "<text x=\"\(Markup.number(Self.margin))\" y=\"\(Markup.number(y - 4))\">\(content)</text>"
    }

    /// Lines of at most so many characters, broken between words where that is possible.
    static func wrapped(_ text: String, _ length: Int) -> [String] {
        var lines = [""]
        for word in text.split(separator: " ", omittingEmptySubsequences: false) {
            var rest = word[...]
            let last = lines[lines.count - 1]
            if last.isEmpty || last.count + rest.count + 1 <= length {
                lines[lines.count - 1] = last.isEmpty ? "" : last + " "
            } else {
                lines.append("")
            }
            while lines[lines.count - 1].count + rest.count > length, length > 0 {
                let part = rest.prefix(length - lines[lines.count - 1].count)
                lines[lines.count - 1] += part
                rest = rest.dropFirst(part.count)
                lines.append("")
            }
            lines[lines.count - 1] += rest
        }
        return lines.filter { !$0.isEmpty }
    }

    /// The times in which a process was stopped, or missing after it was killed.
    private func absences(_ events: [DeviceEvent]) -> [(Double, Double)] {
        var found: [(Double, Double)] = []
        var since: Double?
        for event in events {
            switch event.kind {
            case .stopped, .killed, .ended: since = since ?? event.milliseconds
            case .continued, .started:
                if let start = since, event.milliseconds > begin { found.append((start, event.milliseconds)) }
                since = nil
            default: break
            }
        }
        if let since { found.append((since, end)) }
        return found.filter { $0.0 < end }
    }

    // MARK: Shapes

    private func line(_ style: String, _ x1: Double, _ y1: Double, _ x2: Double, _ y2: Double) -> String {
        "<line class=\"\(style)\" x1=\"\(Markup.number(x1))\" y1=\"\(Markup.number(y1))\" "
            + "x2=\"\(Markup.number(x2))\" y2=\"\(Markup.number(y2))\"/>"
    }

    /// - Parameter isOpen: whether it had not ended when the check did: its end is torn off.
    private func bar(
        _ kind: TimelineStyle.Bar,
        _ from: Double,
        _ to: Double,
        _ y: Double,
        _ lane: String,
        isOpen: Bool = false
    ) -> String {
        let (start, stop) = (x(from), max(x(to), x(from) + 1))
        let until = isOpen ? "and never ended" : "to \(Text.milliseconds(to))"
        let title = "\(names[lane]): \(kind.meaning), \(Text.milliseconds(from)) \(until)"
        let fill = kind == .away ? " fill=\"url(#\(identifier))\"" : ""
        return "<path class=\"\(kind.rawValue)\(isOpen ? " open" : "")\"\(fill) d=\"\(shape(start, stop, y, isOpen))\">"
            + "<title>\(Markup.escaped(title))</title></path>"
    }

    private func shape(_ start: Double, _ stop: Double, _ y: Double, _ isOpen: Bool) -> String {
        let height = Self.barHeight
        let edge =
            isOpen
            ? (1...4).map {
                "L\(Markup.number($0 % 2 == 1 ? stop - 6 : stop)) \(Markup.number(y + Double($0) * height / 4))"
            }
            .joined()
            : "V\(Markup.number(y + height))"
        return "M\(Markup.number(start)) \(Markup.number(y))H\(Markup.number(stop))\(edge)H\(Markup.number(start))Z"
    }

    private func mark(_ event: DeviceEvent, _ x: Double, _ y: Double) -> String {
        let label = Markup.escaped("\(Text.milliseconds(event.milliseconds)): \(names[event.lane]) \(event.text)")
        let (letter, style, _) = TimelineStyle.sign(event.kind)
        return sign(
            letter,
            style,
            x,
            y,
            "<title>\(label)</title>",
            " tabindex=\"0\" role=\"img\" aria-label=\"\(label)\""
        )
    }

    private func sign(
        _ letter: String,
        _ style: String,
        _ x: Double,
        _ y: Double,
        _ title: String,
        _ more: String
    ) -> String {
        "<g class=\"mark \(style)\"\(more)>\(title)<circle cx=\"\(Markup.number(x))\" cy=\"\(Markup.number(y))\" r=\"8\"/>"
            + "<text x=\"\(Markup.number(x))\" y=\"\(Markup.number(y + 3.6))\">\(letter)</text></g>"
    }

    // MARK: Legend

    /// The signs that occur, with their meanings.
    private func legend(_ y: inout Double) -> [String] {
        let kinds = DeviceEvent.Kind.allCases.filter { kind in
            round.events.contains {
                $0.kind == kind && lanes.contains($0.lane) && (begin...end).contains($0.milliseconds)
            }
        }
        var place = Self.margin
        var parts: [String] = []
        y += 6
        func add(_ text: String, sample: Double, _ draw: (Double) -> String) {
            let needed = sample + Double(text.count) * 6.4 + 20
            if place + needed > width, place > Self.margin {
                place = Self.margin
                y += 24
            }
            parts.append(draw(place))
            parts.append(
                "<text class=\"note\" x=\"\(Markup.number(place + sample))\" y=\"\(Markup.number(y + 4))\">\(text)</text>"
            )
            place += needed
        }
        for kind in kinds {
            let (letter, style, meaning) = TimelineStyle.sign(kind)
            add(meaning, sample: 22) { sign(letter, style, $0 + 8, y, "", "") }
        }
        for bar in TimelineStyle.Bar.allCases {
            let fill = bar == .away ? " fill=\"url(#\(identifier))\"" : ""
            add(bar.meaning, sample: 32) {
                "<path class=\"\(bar.rawValue)\"\(fill) d=\"\(shape($0, $0 + 24, y - 6, false))\"/>"
            }
        }
        if !round.apps.allSatisfy(\.isClean) {
            add("not done at the end of the check", sample: 32) {
                "<path class=\"cleaning open\" d=\"\(shape($0, $0 + 24, y - 6, true))\"/>"
            }
        }
        y += 18
        return parts
    }
}
