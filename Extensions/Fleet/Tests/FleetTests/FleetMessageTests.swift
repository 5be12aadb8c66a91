import Basics
import Fleet
import MQTTClient
import Testing

@Suite("The fleet's messages")
struct FleetMessageTests {
    private static let topics = FleetTopics(fleet: "clinic")

    private static func event(_ type: String, _ data: String, more: String = "") -> [UInt8] {
        Array(
            """
            {"specversion":"1.0","type":"org.notifycenter.shareddevice.\(type).v1","source":"/x","id":"1"\(more),"data":\(data)}
            """.utf8
        )
    }

    private static var report: DeviceReport {
        var report = DeviceReport()
        report.seen = .init(all: 5, own: 6)
        report.result = .init(order: 6, outcome: .sessionOver, ended: 41)
        report.mode = "shared"
        report.session = 42
        report.rounds = [
            .init(session: 41, finished: 2, waived: 1, owing: [.init(app: "notes", progress: "told")], more: 3)
        ]
        report.contactTimeout = 600
        report.isClockSynchronised = true
        report.sequence = (1 << 53) - 1
        report.problems = ["“a”\n\\"]
        return report
    }

    @Test("each message survives encoding and parsing, with as many steps as fit")
    func roundTrips() throws {
        let messages: [FleetMessage] = [
            .desired(.init(number: 9, session: 3, reason: "é \u{1F512}")), .desired(.init(number: 9, reason: "")),
            .heartbeat(highest: 12), .presence(isOnline: false), .reported(.init()),
        ]
        for message in messages {
            let event = FleetEvent(message, source: "/fleet/clinic", identifier: "7", time: 1_700_000_000.25)
            #expect(try FleetEvent(parsing: event.bytes) == event)
        }
        let step = DeviceReport.Round.Step(app: "notes", progress: "begun", told: 12, begun: 15, finished: nil)
        var (report, wanted) = (Self.report, Self.report)
        let steps = Array(repeating: step, count: DeviceReport.mostSteps)
        report.rounds.append(.init(session: 7, finished: 0, owing: [], ended: 1.5, steps: steps + [step]))
        wanted.rounds.append(.init(session: 7, finished: 0, owing: [], ended: 1.5, steps: steps))
        wanted.problems = ["“a”\u{FFFD}\\"]
        let event = FleetEvent(.reported(report), source: "/x", identifier: "7", time: nil)
        #expect(try FleetEvent(parsing: event.bytes).message == .reported(wanted))
    }

    @Test("FL-11: a report has printable texts, bounded counts and a bounded size")
    func texts() throws {
        let text = "a\0b\u{1B}"
        var report = Self.report
        report.mode = text
        let most: UInt64 = (1 << 53) - 1
        let owing = [DeviceReport.Round.Debt(app: text, progress: text)]
        let steps = [DeviceReport.Round.Step(app: text, progress: text, told: nil, begun: nil, finished: nil)]
        report.rounds = [.init(session: 1, finished: most, waived: most, owing: owing, more: most, steps: steps)]
        let read = try DeviceReport(report.json)
        let round = try #require(read.rounds.first)
        let texts =
            [read.mode] + round.owing.flatMap { [$0.app, $0.progress] } + round.steps.flatMap { [$0.app, $0.progress] }
        #expect(texts == Array(repeating: "a\u{FFFD}b\u{FFFD}", count: 5))
        #expect([round.finished, round.waived, round.more].allSatisfy { $0 == DeviceReport.mostApps })
        var largest = Self.report
        let debt = DeviceReport.Round.Debt(app: String(repeating: "x", count: 255), progress: "failed")
        let problem = String(repeating: "x", count: DeviceReport.longestText)
        largest.rounds = (0..<UInt64(DeviceReport.mostRounds)).map {
            .init(session: (1 << 53) - 1 - $0, finished: 1 << 50, waived: 1 << 50, owing: [], more: 1 << 50)
        }
        largest.rounds[0] = .init(session: 1, finished: 0, owing: Array(repeating: debt, count: DeviceReport.mostDebts))
        largest.problems = Array(repeating: problem, count: DeviceReport.mostProblems)
        let bytes = FleetEvent(.reported(largest), source: "/x", identifier: "7", time: 0).bytes
        #expect(bytes.count <= FleetEvent.largest, "\(bytes.count)")
        #expect(throws: Never.self) { try FleetEvent(parsing: bytes) }
    }

    @Test("FL-11: a malformed message is refused, and unknown members are ignored")
    func malformed() throws {
        let texts = [
            "", "{}", "[]", "\u{0}", "{\"specversion\":\"1.0\"}", String(repeating: "[", count: 5000),
            String(repeating: " ", count: FleetEvent.largest + 1),
        ]
        let events: [(type: String, data: String)] = [
            ("desired", #"{"order":1.5,"action":"sign-out"}"#), ("desired", #"{"order":-1,"action":"sign-out"}"#),
            ("desired", #"{"order":1,"action":"wipe"}"#),
            ("desired", #"{"order":9007199254740992,"action":"sign-out"}"#),
            ("desired", #"{"order":1,"order":2,"action":"sign-out"}"#),
            ("desired", #"{"order":1,"action":"sign-out","session":"7"}"#),
            ("desired", #"{"order":1,"action":"sign-out","reason":"\#(String(repeating: "x", count: 201))"}"#),
            ("reported", "{}"), ("presence", #"{"online":1}"#), ("wipe", "{}"),
            ("reported", #"{"seen":{"all":1,"own":1},"mode":"shared","rounds":[1],"sequence":1}"#),
        ]
        var malformed: [[UInt8]] = [[0xFF, 0xFE]]
        malformed += texts.map { Array($0.utf8) }
        malformed += events.map { Self.event($0.type, $0.data) }
        for bytes in malformed {
            #expect(throws: FleetRefusal.self, "\(bytes.prefix(300))") { try FleetEvent(parsing: bytes) }
        }
        let bytes = Self.event("heartbeat", #"{"order":4,"later":[1]}"#, more: #","extra":{"a":1}"#)
        #expect(try FleetEvent(parsing: bytes).message == .heartbeat(highest: 4))
    }

    @Test("a configuration with an unknown key is refused by the key's name")
    func unknownKey() {
        let text = #"{"fleet": "clinic", "contacttimeout": 60}"#
        let refusal = #expect(throws: FleetRefusal.self) { try FleetConfiguration(parsing: Array(text.utf8)) }
        #expect(refusal?.description.contains("contacttimeout") == true)
    }

    @Test("topics contain only valid names of fleets and devices")
    func topics() throws {
        let topics = try #require(Self.topics)
        for topic: FleetTopic in [
            .allDesired, .heartbeat, .desired(device: "a-1"), .reported(device: "a"), .presence(device: "b"),
        ] { #expect(topics.topic(topics.text(topic)) == topic) }
        for text in [
            "sd/1/other/all/desired", "sd/1/clinic/dev/A/reported", "sd/1/clinic/dev/+/reported",
            "sd/1/clinic/dev//reported",
            "sd/1/clinic/dev/a/reported/x", "sd/1/clinic/all/x", "sd/1/clinic",
        ] {
            #expect(topics.topic(text) == nil, "\(text)")
        }
        #expect(FleetTopics(fleet: "a/b") == nil && FleetTopics(fleet: "") == nil && FleetTopics(fleet: "a+") == nil)
    }

    @Test("FL-9: waits grow with full jitter to 120 s, and to 300 s after ten minutes")
    func backoff() {
        var delay = ReconnectDelay()
        let waits = (0..<14).map { _ in delay.next(fraction: 1) / .seconds(1) }
        #expect(waits == [1, 2, 4, 8, 16, 32, 64, 120, 120, 120, 120, 240, 300, 300])
        delay.reset()
        #expect(delay.next(fraction: 0.5) == .milliseconds(500))
        #expect(delay.next(fraction: 0) == .zero)
    }
}
