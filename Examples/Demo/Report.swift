import DeviceConfiguration
import ExampleSupport
import Foundation
import NotifyCenter
import SharedDevice
import SharedDeviceTestKit
import Synchronization

/// What the demonstration prints at its end.
struct Report: Sendable {
    let timelines: [Timeline]
    let receipts: [Receipts]
    let proof: Proof
    /// The step that failed; `nil` if none did.
    let failure: String?
    /// What this machine cannot show, and why; `nil` for nothing.
    let leftOut: String?

    private var isClean: Bool { failure == nil && proof.holds }

    /// Everything, for people.
    func text(inColor: Bool) -> String {
        (timelines.map(\.table) + receipts.map(\.table) + [proof.text, leftOut, verdict(inColor)].compactMap(\.self))
            .joined(separator: "\n\n")
            + "\n"
    }

    /// In at most 12 lines, where nothing fails: who cleaned up when, what does not hold, and the verdict.
    func summary(inColor: Bool) -> String {
        var lines = Receipts.summary(receipts)
        let failing = proof.claims.filter { !$0.holds }
        lines += failing.prefix(2).map { "FAILS: \($0.text)" }
        if failing.count > 2 { lines.append("… and \(Text.count(failing.count - 2, "more claim"))") }
        lines += [leftOut, proof.summary, verdict(inColor)].compactMap(\.self)
        return lines.joined(separator: "\n") + "\n"
    }

    private func verdict(_ inColor: Bool) -> String {
        let text =
            if let failure {
                "FAILED: \(failure.split(separator: "\n").first ?? "")"
            } else {
                proof.holds ? "proved: every app cleaned up" : "NOT PROVED: not every claim holds; --verbose lists them"
            }
        return inColor ? "\u{1B}[1;\(isClean ? 32 : 31)m\(text)\u{1B}[0m" : text
    }

    var json: String {
        get throws {
            let content = Content(
                timelines: timelines.map { timeline in
                    Content.Part(
                        title: timeline.title,
                        rows: timeline.rows.map {
                            Content.Row(
                                milliseconds: timeline.milliseconds($0),
                                process: $0.process,
                                event: $0.event,
                                text: $0.text
                            )
                        }
                    )
                },
                receipts: receipts.map(\.report),
                claims: proof.claims,
                isClean: isClean,
                failure: failure,
                leftOut: leftOut
            )
            let encoder = JSONEncoder()
            encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
            return String(decoding: try encoder.encode(content), as: UTF8.self) + "\n"
        }
    }

    /// The property names are the JSON's keys.
    private struct Content: Encodable {
        struct Part: Encodable {
            let title: String
            let rows: [Row]
        }

        struct Row: Encodable {
            /// Since the call of the sign-out.
            let milliseconds: Double
            let process: String
            let event: String
            let text: String
        }

        let timelines: [Part]
        /// The broker's records, round by round.
        let receipts: [CleanupReport]
        let claims: [Proof.Claim]
        let isClean: Bool
        let failure: String?
        let leftOut: String?
    }
}

/// Claims that the demonstration tested, with the evidence.
struct Proof: Sendable {
    /// The results of a search, for each directory by name.
    typealias Results = [(name: String, result: ByteSearch.Result)]

    struct Claim: Sendable, Codable {
        let holds: Bool
        let text: String
        let evidence: [String]
    }

    private(set) var claims: [Claim] = []
    /// How much the searches that should find nothing have read.
    private var searched = (files: 0, bytes: 0)

    var holds: Bool { claims.allSatisfy(\.holds) }

    mutating func add(_ text: String, holds: Bool, evidence: [String] = []) {
        claims.append(Claim(holds: holds, text: text, evidence: evidence))
    }

    /// Claims that each directory contains every marker. Without this, a later search that finds nothing would prove nothing.
    mutating func addPresence(_ text: String, of markers: [Marker], in results: Results) {
        let isThere = results.allSatisfy { entry in markers.allSatisfy { entry.result.contains($0) } }
        add(text, holds: isThere && !results.isEmpty, evidence: results.map(Self.summary))
    }

    /// Claims that no directory contains any of the markers.
    ///
    /// - Parameter listsFiles: whether the evidence names every file that was searched.
    mutating func addAbsence(_ text: String, in results: Results, listsFiles: Bool = false) {
        let evidence = results.flatMap { entry in
            [Self.summary(entry)]
                + (listsFiles ? entry.result.files.map { "    \($0.path), \($0.bytes) bytes" } : [])
                + entry.result.findings.map { finding in
                    let place = finding.offset.map { "at byte \($0)" } ?? "in the name"
                    return "    FOUND the \(finding.marker) (\(finding.encoding)) \(place) of \(finding.path)"
                }
        }
        for (_, result) in results {
            searched.files += result.files.count
            searched.bytes += result.bytes
        }
        let isClean = results.allSatisfy { $0.result.findings.isEmpty }
        add(text, holds: isClean && !results.isEmpty, evidence: evidence)
    }

    /// For people.
    var text: String {
        claims.map { claim in
            (["\(claim.holds ? "holds" : "FAILS"): \(claim.text)"] + claim.evidence.map { "    \($0)" })
                .joined(separator: "\n")
        }.joined(separator: "\n")
    }

    /// One line: how many claims hold.
    var summary: String {
        "\(claims.count { $0.holds }) of \(Text.count(claims.count, "claim")) hold; \(searched.files) files with "
            + "\(searched.bytes) bytes searched for what must be gone (--verbose: the evidence)"
    }

    private static func summary(_ entry: Results.Element) -> String {
        let result = entry.result
        let found = result.findings.isEmpty ? "found nothing" : "found in \(Text.count(result.findings.count, "place"))"
        return "\(entry.name): \(Text.count(result.files.count, "file")), \(result.bytes) bytes searched, \(found)"
    }
}

/// The broker's record of one cleanup round, as a table. Pure.
struct Receipts: Sendable {
    let title: String
    /// What was special about the sign-out.
    let circumstances: String
    let report: CleanupReport

    /// An aligned table with a headline.
    var table: String {
        "\(title): the round is \(report.outcome.rawValue)\n"
            + Text.table(["app", "told", "began", "receipt", "what it reported"], report.apps.map(row))
    }

    /// All rounds in one table, each with a line about it.
    static func summary(_ rounds: [Receipts]) -> [String] {
        let rows = rounds.map { round in
            round.report.apps.map { app in
                let row = round.row(app)
                return ["  " + row[0], row[1], row[3], app.detail ?? app.progress.rawValue]
            }
        }
        let table = Text.table(["", "TOLD", "CLEAN", "WHAT IT REPORTED"], rows.flatMap(\.self)).split(separator: "\n")
        var lines = table.prefix(1).map(String.init)
        var rest = table.dropFirst()
        for round in rounds {
            lines.append("\(round.title): \(round.circumstances)")
            lines += rest.prefix(round.report.apps.count).map(String.init)
            rest = rest.dropFirst(round.report.apps.count)
        }
        return lines
    }

    private func row(_ app: CleanupReport.App) -> [String] {
        let names = AppNames(report.apps.map(\.identifier))
        return [names[app.identifier]] + [app.toldAfter, app.begunAfter, app.finishedAfter].map(Self.milliseconds)
            + ["\(app.progress.rawValue): \(app.detail ?? "")"]
    }

    private static func milliseconds(_ seconds: Double?) -> String {
        seconds.map { Text.milliseconds($0 * 1000) } ?? "–"
    }
}

/// What the demonstration itself did and observed, as rows of the timeline.
final class Notes: Sendable {
    private let rows = Mutex<[Timeline.Row]>([])
    private let observation = Mutex<NotificationObservation?>(nil)

    func add(_ process: String, _ event: String, _ text: String) {
        let row = Timeline.Row(
            nanoseconds: MonotonicClock.nanoseconds,
            process: process,
            event: event,
            text: text
        )
        rows.withLock { $0.append(row) }
    }

    func rows(from start: UInt64, to end: UInt64) -> [Timeline.Row] {
        rows.withLock { $0.filter { (start..<end).contains($0.nanoseconds) } }
    }

    /// Notes every broadcast of an account change from now on.
    func listen(on bus: Bus) async throws {
        let observation = try await DarwinNotifyCenter(bus: bus)
            .observe(.sharedModeCurrentAccountChanged, delivery: .immediate) { [weak self] notification in
                self?.add("broker", Timeline.broadcast, "tells all apps to ask (\(notification.name))")
            }
        self.observation.withLock { $0 = observation }
    }
}
