/// The colours of reports, for one background.
struct Palette: Sendable {
    let colours: [(name: String, value: String)]

    /// For CSS: custom properties, which the style refers to.
    var properties: String { colours.map { "--\($0.name): \($0.value);" }.joined(separator: " ") }

    static let light = Palette(colours: [
        ("ink", "#1b1f24"), ("paper", "#ffffff"), ("dim", "#5c6670"), ("line", "#d5dae0"), ("good", "#11713a"),
        ("bad", "#b3261e"), ("told", "#7a5200"), ("account", "#1f4fa3"), ("fault", "#8a1c7c"), ("owed", "#f3dca6"),
        ("cleaning", "#9cc4f2"),
    ])
    static let dark = Palette(colours: [
        ("ink", "#e6e9ec"), ("paper", "#14171a"), ("dim", "#9aa4ae"), ("line", "#363d44"), ("good", "#5fd08c"),
        ("bad", "#ff8a80"), ("told", "#f0c060"), ("account", "#8fb8ff"), ("fault", "#f09ae4"), ("owed", "#57471f"),
        ("cleaning", "#28507c"),
    ])
    static let print = Palette(colours: [
        ("ink", "#000000"), ("paper", "#ffffff"), ("dim", "#333333"), ("line", "#999999"), ("good", "#000000"),
        ("bad", "#000000"), ("told", "#000000"), ("account", "#000000"), ("fault", "#000000"), ("owed", "#eeeeee"),
        ("cleaning", "#bbbbbb"),
    ])
}

/// What the drawing of a timeline is made of: signs and their meanings, and the style of both.
enum TimelineStyle {
    /// The letter, the style and the meaning of each kind of event. A letter, because colours alone would say nothing on paper.
    static func sign(_ kind: DeviceEvent.Kind) -> (letter: String, style: String, meaning: String) {
        switch kind {
        case .signIn: ("I", "account", "sign-in")
        case .signOut: ("O", "account", "sign-out")
        case .broadcast: ("A", "account", "broadcast: all apps ask")
        case .told: ("T", "told", "asks and is told")
        case .begun: ("B", "told", "begins to clean up")
        case .finished: ("F", "good", "reports: clean")
        case .failed: ("!", "bad", "could not clean up")
        case .waived: ("W", "bad", "waived")
        case .enforced: ("E", "bad", "enforced")
        case .stopped: ("=", "fault", "stopped")
        case .continued: ("›", "fault", "goes on")
        case .killed: ("×", "fault", "killed")
        case .started: ("S", "life", "starts")
        case .ended: ("E", "life", "ends")
        case .spoofed: ("?", "fault", "spoofed broadcast")
        }
    }

    /// The kinds of bars.
    enum Bar: String, CaseIterable {
        case owed, cleaning
        case away = "stop"

        var meaning: String {
            switch self {
            case .owed: "has not heard of it"
            case .cleaning: "cleans up"
            case .away: "stopped, or not there"
            }
        }
    }

    /// The rules for the drawing, with the properties of a ``Palette``.
    static let rules = """
        svg text { font: 12.5px system-ui, sans-serif; fill: var(--ink); }
        svg text { paint-order: stroke; stroke: var(--paper); stroke-width: 3px; } svg .mark text { stroke: none; }
        svg .name { font-weight: 600; } svg .state.good { fill: var(--good); } svg .state.bad { fill: var(--bad); font-weight: 600; }
        svg .time { text-anchor: middle; fill: var(--dim); font-size: 11px; } svg .note { fill: var(--dim); font-size: 12px; }
        svg .tick { stroke: var(--line); } svg .origin { stroke: var(--account); stroke-width: 1.5; }
        svg .base, svg .stem { stroke: var(--dim); stroke-width: 0.8; fill: none; } svg .base { stroke-dasharray: 2 3; }
        svg .owed { fill: var(--owed); } svg .cleaning { fill: var(--cleaning); } svg .hatch { fill: var(--fault); }
        svg .stop { stroke: var(--fault); stroke-width: 0.7; } svg .open { stroke: var(--bad); stroke-width: 1.4; }
        svg .mark circle { fill: var(--paper); stroke-width: 1.6; stroke: currentColor; }
        svg .mark text { text-anchor: middle; font-size: 10.5px; font-weight: 700; fill: currentColor; }
        svg .mark:focus { outline: none; } svg .mark:focus circle { stroke-width: 4; }
        svg .told { color: var(--told); } svg .account { color: var(--account); } svg .fault { color: var(--fault); }
        svg .life { color: var(--dim); } svg .mark.good { color: var(--good); } svg .mark.bad { color: var(--bad); }
        """
}

/// Puts marks beside each other that would cover each other. Pure.
enum MarkSpacing {
    /// The places that are nearest to the wanted ones, in the same order, at least `gap` apart and within `range`.
    ///
    /// - Parameters:
    ///   - wanted: in ascending order.
    ///   - range: has room for all of them.
    static func spread(_ wanted: [Double], gap: Double, within range: ClosedRange<Double>) -> [Double] {
        // Without the gaps the places only have to ascend. Neighbours that do not are pooled at their mean.
        var pools: [(sum: Double, count: Int)] = []
        for (index, place) in wanted.enumerated() {
            pools.append((place - Double(index) * gap, 1))
            while pools.count > 1, let last = pools.last, mean(pools[pools.count - 2]) > mean(last) {
                pools.removeLast()
                pools[pools.count - 1].sum += last.sum
                pools[pools.count - 1].count += last.count
            }
        }
        let last = range.upperBound - Double(max(0, wanted.count - 1)) * gap
        let places = pools.flatMap { Array(repeating: min(max(mean($0), range.lowerBound), last), count: $0.count) }
        return places.enumerated().map { $1 + Double($0) * gap }
    }

    private static func mean(_ pool: (sum: Double, count: Int)) -> Double { pool.sum / Double(pool.count) }
}
