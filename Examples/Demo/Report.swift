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

    private var isClean: Bool { failure == nil && proof.holds }

    var text: String {
        let verdict =
            if let failure {
                "FAILED: \(failure)"
            } else {
                proof.holds ? "proved: every app cleaned up" : "NOT PROVED: see what fails above"
            }
        return (timelines.map(\.table) + receipts.map(\.table) + [proof.text, verdict]).joined(separator: "\n\n") + "\n"
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
                failure: failure
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

    private static func summary(_ entry: Results.Element) -> String {
        let result = entry.result
        let found = result.findings.isEmpty ? "found nothing" : "found in \(result.findings.count) places"
        return "\(entry.name): \(result.files.count) files, \(result.bytes) bytes searched, \(found)"
    }
}

/// The broker's record of one cleanup round, as a table. Pure.
struct Receipts: Sendable {
    let title: String
    let report: CleanupReport

    /// An aligned table with a headline.
    var table: String {
        let head = ["app", "told", "began", "receipt", "what it reported"]
        let rows = report.apps.map { app in
            [
                app.identifier, Self.milliseconds(app.toldAfter), Self.milliseconds(app.begunAfter),
                Self.milliseconds(app.finishedAfter), "\(app.progress.rawValue): \(app.detail ?? "")",
            ]
        }
        let widths = head.indices.map { column in ([head] + rows).map { $0[column].count }.max() ?? 0 }
        let lines = ([head] + rows).map { row in
            zip(row, widths).enumerated().map { column, cell in
                // The last column needs no padding.
                column == head.count - 1 ? cell.0 : cell.0 + String(repeating: " ", count: cell.1 - cell.0.count)
            }.joined(separator: "  ")
        }
        return (["\(title): the round is \(report.outcome.rawValue); ms after the sign-out"] + lines)
            .joined(separator: "\n")
    }

    private static func milliseconds(_ seconds: Double?) -> String {
        seconds.map { "+\(Int(($0 * 1000).rounded()))" } ?? "-"
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
                self?.add("broker", "broadcast", "broadcasts \(notification.name)")
            }
        self.observation.withLock { $0 = observation }
    }
}
