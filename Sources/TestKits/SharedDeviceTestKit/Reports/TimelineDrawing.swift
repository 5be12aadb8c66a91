/// The timeline of one sign-out as SVG: one lane for each process, from the sign-out to the last receipt. Pure.
struct TimelineDrawing {
    private static let width = 960.0
    private static let left = 220.0
    private static let right = 24.0
    private static let laneHeight = 36.0
    private static let top = 34.0

    private let round: CheckResult.Round
    private let number: Int
    private let lanes: [String]
    private let begin: Double
    private let end: Double

    /// - Parameter number: the number of the drawing on its page.
    init(_ round: CheckResult.Round, number: Int) {
        self.round = round
        self.number = number
        let apps = round.apps.map(\.identifier)
        // The drawing ends with the last event of the sign-out, and leaves out later events, such as the next sign-in.
        let receipts: Set<DeviceEvent.Kind> = [.told, .begun, .failed, .finished, .waived]
        let last = round.events.last { receipts.contains($0.kind) }?.milliseconds
        end = max(last ?? round.events.last?.milliseconds ?? 0, 1) * 1.04
        begin = -end * 0.04
        let (begin, end) = (begin, end)
        let others = [DeviceEvent.deviceLane, DeviceEvent.brokerLane, DeviceEvent.busLane].filter { lane in
            round.events.contains { $0.lane == lane && (begin...end).contains($0.milliseconds) }
        }
        lanes = others + apps
    }

    var svg: String {
        let height = Self.top + Double(lanes.count) * Self.laneHeight + 12
        let label = "Timeline of the sign-out of \(round.user)"
        var parts = [
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 \(Markup.number(Self.width)) \(Markup.number(height))\" "
                + "role=\"img\" aria-label=\"\(Markup.escaped(label))\">",
            "<defs><pattern id=\"hatch\(number)\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
                + "patternTransform=\"rotate(45)\"><rect class=\"hatch\" width=\"2\" height=\"6\"/></pattern></defs>",
        ]
        parts += ticks(height)
        for (index, lane) in lanes.enumerated() { parts += drawing(of: lane, index) }
        parts.append("</svg>")
        return parts.joined(separator: "\n")
    }

    private func x(_ milliseconds: Double) -> Double {
        let clipped = min(max(milliseconds, begin), end)
        return Self.left + (clipped - begin) / (end - begin) * (Self.width - Self.left - Self.right)
    }

    private func ticks(_ height: Double) -> [String] {
        let step = Self.step(for: end / 6)
        return stride(from: 0, through: end, by: step).flatMap { time -> [String] in
            let place = Markup.number(x(time))
            return [
                "<line class=\"\(time == 0 ? "origin" : "tick")\" x1=\"\(place)\" y1=\"\(Markup.number(Self.top - 8))\" "
                    + "x2=\"\(place)\" y2=\"\(Markup.number(height - 8))\"/>",
                "<text class=\"time\" x=\"\(place)\" y=\"\(Markup.number(Self.top - 14))\">\(Self.label(time))</text>",
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

    private func drawing(of lane: String, _ index: Int) -> [String] {
        let middle = Self.top + (Double(index) + 0.5) * Self.laneHeight
        let events = round.events.filter { $0.lane == lane }
        let app = round.apps.first { $0.identifier == lane }
        let name = String(Text.printable(lane).suffix(30))
        let cut = name.count < lane.count ? "…" : ""
        var parts = [
            "<text class=\"lane\" x=\"\(Markup.number(Self.left - 12))\" y=\"\(Markup.number(middle + 4))\">"
                + "<title>\(Markup.escaped(lane))</title>\(Markup.escaped(cut + name))</text>",
            "<line class=\"base\" x1=\"\(Markup.number(Self.left))\" y1=\"\(Markup.number(middle))\" "
                + "x2=\"\(Markup.number(Self.width - Self.right))\" y2=\"\(Markup.number(middle))\"/>",
        ]
        if let app, app.heardAfter != nil || !app.isClean {
            let heard = app.heardAfter ?? end
            parts.append(bar("owed", 0, heard, middle, "\(lane): has not heard of it"))
            if app.heardAfter != nil {
                let done = app.isClean ? app.cleanedAfter ?? end : end
                parts.append(bar("cleaning", app.begunAfter ?? heard, done, middle, "\(lane): cleans up"))
            }
        }
        parts += stops(events, middle)
        parts += events.filter { $0.milliseconds >= begin && $0.milliseconds <= end }.map { mark($0, middle) }
        return parts
    }

    private func bar(_ style: String, _ from: Double, _ to: Double, _ middle: Double, _ title: String) -> String {
        let (start, stop) = (x(from), x(to))
        let fill = style == "stop" ? " fill=\"url(#hatch\(number))\"" : ""
        let inset = style == "stop" ? 12.0 : 7
        return "<rect class=\"\(style)\"\(fill) x=\"\(Markup.number(start))\" y=\"\(Markup.number(middle - inset))\" "
            + "width=\"\(Markup.number(max(1, stop - start)))\" height=\"\(Markup.number(inset * 2))\">"
            + "<title>\(Markup.escaped(title)), \(Text.milliseconds(from)) to \(Text.milliseconds(to))</title></rect>"
    }

    /// The times in which a process was stopped, or missing after it was killed.
    private func stops(_ events: [DeviceEvent], _ middle: Double) -> [String] {
        var parts: [String] = []
        var since: Double?
        for event in events {
            switch event.kind {
            case .stopped, .killed, .ended: since = since ?? event.milliseconds
            case .continued, .started:
                if let start = since, event.milliseconds > begin {
                    parts.append(bar("stop", start, event.milliseconds, middle, "stopped, or not there"))
                }
                since = nil
            default: break
            }
        }
        if let since { parts.append(bar("stop", since, end, middle, "stopped, or not there")) }
        return parts
    }

    /// A letter in a circle: colours alone would say nothing on paper.
    private func mark(_ event: DeviceEvent, _ middle: Double) -> String {
        let (letter, style) = Self.sign(event.kind)
        let (place, height) = (Markup.number(x(event.milliseconds)), Markup.number(middle))
        let title = "\(Text.milliseconds(event.milliseconds)): \(event.lane) \(event.text)"
        return "<g class=\"mark \(style)\"><title>\(Markup.escaped(title))</title>"
            + "<circle cx=\"\(place)\" cy=\"\(height)\" r=\"8\"/>"
            + "<text x=\"\(place)\" y=\"\(Markup.number(middle + 3.6))\">\(letter)</text></g>"
    }

    /// The letter and the style of each kind.
    static func sign(_ kind: DeviceEvent.Kind) -> (letter: String, style: String) {
        switch kind {
        case .signIn: ("I", "account")
        case .signOut: ("O", "account")
        case .told: ("T", "told")
        case .begun: ("B", "told")
        case .finished: ("F", "good")
        case .failed: ("!", "bad")
        case .waived: ("W", "bad")
        case .started: ("S", "life")
        case .ended: ("E", "life")
        case .stopped: ("=", "fault")
        case .continued: ("›", "fault")
        case .killed: ("×", "fault")
        case .spoofed: ("?", "fault")
        case .broadcast: ("A", "account")
        }
    }
}
