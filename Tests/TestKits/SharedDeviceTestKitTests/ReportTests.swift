import DeviceConfiguration
import Foundation
import Testing

@testable import SharedDeviceTestKit

@Suite("Reports of checks")
struct ReportTests {
    private typealias Round = CheckResult.Round

    private static let apps = [
        "org.example.a-name-that-is-far-longer-than-most-others-are.point-of-sale", "org.example.notes",
    ]

    private func app(_ identifier: String, cleanedAfter: Double?) throws -> Round.App {
        let members: [String: Any] = [
            "identifier": identifier, "isClean": cleanedAfter != nil, "heardAfter": 2, "begunAfter": 3,
            "summary": cleanedAfter == nil ? "has heard, reported nothing" : "clean",
        ]
        let all = members.merging(cleanedAfter.map { ["cleanedAfter": $0] } ?? [:]) { $1 }
        return try JSONDecoder().decode(Round.App.self, from: JSONSerialization.data(withJSONObject: all))
    }

    /// A sign-out with several events within a millisecond. The second app may never report.
    private func round(isClean: Bool) throws -> Round {
        let kinds: [DeviceEvent.Kind] = [.told, .begun, .stopped, .continued, .finished]
        var events = kinds.enumerated().map {
            DeviceEvent(milliseconds: 2 + Double($0) * 0.2, lane: Self.apps[0], kind: $1, text: "\($1)")
        }
        events.append(DeviceEvent(milliseconds: 2, lane: Self.apps[1], kind: .told, text: "told"))
        let apps = [try app(Self.apps[0], cleanedAfter: 3), try app(Self.apps[1], cleanedAfter: isClean ? 9 : nil)]
        let content: [String: Any] = [
            "session": 1, "user": "ada", "observed": 18_000,
            "apps": try JSONSerialization.jsonObject(with: JSONEncoder().encode(apps)),
            "events": try JSONSerialization.jsonObject(
                with: JSONEncoder().encode(events.sorted { $0.milliseconds < $1.milliseconds })
            ),
        ]
        return try JSONDecoder().decode(Round.self, from: JSONSerialization.data(withJSONObject: content))
    }

    private func drawing(isClean: Bool, width: Double = 336) throws -> String {
        let names = AppNames(Self.apps)
        return TimelineDrawing(try round(isClean: isClean), names: names, identifier: "x", width: width).svg(.dark)
    }

    @Test("marks of events that are close lie beside each other", arguments: [336.0, 920])
    func marksDoNotOverlap(_ width: Double) throws {
        let svg = try drawing(isClean: true, width: width)
        // The legend's signs have no label.
        let places = svg.matches(of: /aria-label="[^"]*"><title>[^<]*<\/title><circle cx="([0-9.]+)" cy="([0-9.]+)"/)
            .map { (x: Double($0.1) ?? 0, y: Double($0.2) ?? 0) }
        #expect(places.count == 6)
        for (index, mark) in places.enumerated() {
            #expect((8...width - 8).contains(mark.x))
            for other in places[(index + 1)...] where other.y == mark.y { #expect(abs(other.x - mark.x) >= 19.9) }
        }
    }

    @Test("marks move as little as possible, and stay in their order")
    func spread() {
        #expect(MarkSpacing.spread([10, 100, 200], gap: 20, within: 0...300) == [10, 100, 200])
        #expect(MarkSpacing.spread([100, 100, 100], gap: 20, within: 0...300) == [80, 100, 120])
        #expect(MarkSpacing.spread([0, 0, 0], gap: 20, within: 0...300) == [0, 20, 40])
        #expect(MarkSpacing.spread([300, 300], gap: 20, within: 0...300) == [280, 300])
    }

    @Test("an app that never reported is drawn to the end of the check, with an open end, a sign and words")
    func unfinished() throws {
        let svg = try drawing(isClean: false)
        #expect(svg.contains("✗ not clean: has heard, reported") && svg.contains("class=\"cleaning open\""))
        #expect(svg.contains("notes: cleans up, 3 ms and never ended"))
        #expect(svg.contains(">15 s</text>"), "the check lasted 18 seconds")
        let clean = try drawing(isClean: true)
        #expect(!clean.contains("✗") && !clean.contains(" open\"") && !clean.contains(" s</text>"))
    }

    @Test("a drawing names whole apps, explains the signs in it, and brings its colours")
    func wholeDrawing() throws {
        let names = AppNames(Self.apps, reserved: ["point-of-sale"])
        let svg = TimelineDrawing(try round(isClean: true), names: names, identifier: "x", width: 336).svg(.light)
        let shown = svg.matches(of: /<tspan class="name">([^<]*)</).map { String($0.1) }
        #expect(shown.joined() == Self.apps[0] + "notes", "\(shown)")
        #expect(svg.contains(">asks and is told</text>") && !svg.contains(">killed</text>"))
        #expect(svg.contains("--paper: #ffffff") && !svg.contains("…"))
    }

    @Test("an app is shown by its last part, by more only where two would be the same, and found by what is shown")
    func names() {
        let keys = [
            "org.example.notes", "org.example.shop (/usr/bin/shop, uid 0)", "/usr/bin/till (uid 7)", "org.a.desk",
            "org.b.desk",
            "org.c.twin (/x, uid 1)", "org.c.twin (/y, uid 1)", "org.example.broker",
        ]
        let names = AppNames(keys, reserved: ["broker"])
        #expect(
            keys.map { names[$0] } == [
                "notes", "shop", "till", "org.a.desk", "org.b.desk", "org.c.twin (/x, uid 1)", "org.c.twin (/y, uid 1)",
                "org.example.broker",
            ]
        )
        for key in keys { #expect(names.keys(for: names[key]) == [key]) }
        #expect(names.keys(for: "org.example.shop") == [keys[1]])
        #expect(names.keys(for: "desk") == ["org.a.desk", "org.b.desk"])
        #expect(names.keys(for: "org.c.twin").count == 2 && names.keys(for: "nobody").isEmpty)
    }

    @Test("times are rounded to what was measured, and counts agree in number")
    func numbers() {
        #expect(
            [0.04, 1.26, 9.96, 10, 41.4, 5000, 30_000].map(Text.milliseconds) == [
                "0 ms", "1.3 ms", "10 ms", "10 ms", "41 ms", "5000 ms", "30000 ms",
            ]
        )
        #expect([0, 1, 2].map { Text.count($0, "app") } == ["0 apps", "1 app", "2 apps"])
    }
}
