import Foundation
import SharedDevice

/// What the demonstration prints at its end.
struct Report: Sendable {
    let timelines: [Timeline]
    let receipts: [Receipts]
    let proof: Proof
    /// Why the play did not come to its end; `nil` where it did.
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
        /// What the broker has on record, round by round.
        let receipts: [CleanupReport]
        let claims: [Proof.Claim]
        let isClean: Bool
        let failure: String?
    }
}
