import DemoStage
import ExampleSupport
import Foundation
import NotifyCenter
@_spi(Extensions) import SharedDevice
@_spi(Extensions) import SharedDeviceTestKit
import Synchronization

struct Report: Sendable {
    let timelines: [Timeline]
    let receipts: [Receipts]
    let proof: Proof
    let failure: String?
    /// The parts that this machine cannot show, and why; `nil` if it shows everything.
    let leftOut: String?

    func text(inColor: Bool) -> String {
        (timelines.map(\.table) + receipts.map(\.table) + [proof.text, leftOut, verdict(inColor)].compactMap(\.self))
            .joined(separator: "\n\n") + "\n"
    }

    /// At most 12 lines if nothing fails: when each app cleaned up, the claims that do not hold, and the verdict.
    func summary(inColor: Bool) -> String {
        var lines = Receipts.summary(receipts)
        let failing = proof.claims.filter { !$0.holds }
        lines += failing.prefix(2).map { "FAILS: \($0.text)" }
        if failing.count > 2 { lines.append("… and \(Text.count(failing.count - 2, "more claim"))") }
        lines += [leftOut, proof.summary, verdict(inColor)].compactMap(\.self)
        return lines.joined(separator: "\n") + "\n"
    }

    private func verdict(_ inColor: Bool) -> String {
        proof.verdict(
            failure.map { String($0.prefix { $0 != "\n" }) },
            proved: "every app cleaned up",
            notProved: "not every claim holds; --verbose lists them",
            inColor: inColor
        )
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
                isClean: failure == nil && proof.holds,
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
        let receipts: [CleanupReport]
        let claims: [Proof.Claim]
        let isClean: Bool
        let failure: String?
        let leftOut: String?
    }
}

/// The demonstration's own actions and observations, as rows of the timeline.
final class Notes: Sendable {
    private let rows = Mutex<[Timeline.Row]>([])
    private let observation = Mutex<NotificationObservation?>(nil)

    func add(_ process: String, _ event: String, _ text: String) {
        let now = MonotonicClock.nanoseconds
        let row = Timeline.Row(nanoseconds: now, process: process, event: event, text: text)
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
