import Foundation

extension CheckResult {
    /// For people at a terminal: the sign-outs, each expectation, and the verdict.
    ///
    /// - Parameter inColor: with the terminal's colours.
    public func text(inColor: Bool = false) -> String {
        let paint: (String, String) -> String = { text, code in inColor ? "\u{1B}[\(code)m\(text)\u{1B}[0m" : text }
        var parts = rounds.map { round in
            let rows = round.apps.map { app in
                [app.identifier]
                    + [app.heardAfter, app.begunAfter, app.cleanedAfter].map { $0.map(Text.milliseconds) ?? "–" }
                    + [app.summary]
            }
            return paint("sign-out of \(Text.printable(round.user)), session \(round.session)", "1") + "\n"
                + Text.table(["APP", "HEARD", "BEGAN", "CLEAN", "STATE"], rows)
        }
        let rows = verdicts.map { ["\($0.step)", $0.outcome.rawValue, $0.app, $0.expectation, $0.detail] }
        let table = Text.table(["STEP", "RESULT", "APP", "EXPECTATION", "SEEN"], rows).split(separator: "\n")
        // The colour goes around lines that are aligned already.
        let lines = table.enumerated().map { index, line in
            guard index > 0, verdicts.indices.contains(index - 1) else { return paint(String(line), "1") }
            switch verdicts[index - 1].outcome {
            case .holds: return String(line)
            case .fails: return paint(String(line), "31")
            case .skipped: return paint(String(line), "33")
            }
        }
        parts.append(lines.joined(separator: "\n"))
        if let failure { parts.append(paint("step \(failure.step) could not be done: \(failure.message)", "31")) }
        parts.append(paint(verdict, holds ? "32" : "31"))
        return parts.joined(separator: "\n\n") + "\n"
    }

    /// One line: what came of it all.
    var verdict: String {
        let failed = verdicts.count { $0.outcome == .fails }
        let skipped = verdicts.count { $0.outcome == .skipped }
        if holds {
            return verdicts.count == 1 ? "the one expectation holds" : "all \(verdicts.count) expectations hold"
        }
        let parts = [
            failed > 0 ? "\(failed) of \(verdicts.count) expectations fail" : nil,
            skipped > 0 ? "\(skipped) were not looked at" : nil,
            failure == nil ? nil : "a step could not be done",
        ]
        return parts.compactMap(\.self).joined(separator: ", ")
    }

    /// As JSON: ``CheckResult`` and `holds`.
    public var json: String {
        get throws {
            let encoder = JSONEncoder()
            encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
            encoder.dateEncodingStrategy = .iso8601
            return String(decoding: try encoder.encode(Document(result: self)), as: UTF8.self) + "\n"
        }
    }

    private struct Document: Encodable {
        let result: CheckResult

        func encode(to encoder: any Encoder) throws {
            try result.encode(to: encoder)
            var container = encoder.container(keyedBy: Key.self)
            try container.encode(result.holds, forKey: .holds)
        }

        enum Key: CodingKey { case holds }
    }
}
