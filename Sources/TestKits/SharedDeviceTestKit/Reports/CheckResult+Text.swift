import Basics
import FoundationEssentials
@_spi(Extensions) import SharedDevice

extension CheckResult {
    /// The result for a terminal: the sign-outs, each failed expectation, and the verdict.
    ///
    /// - Parameters:
    ///   - inColor: whether to use the terminal's colours.
    ///   - isVerbose: whether to list the steps and all expectations.
    ///   - note: lines to print before the verdict.
    public func text(inColor: Bool = false, isVerbose: Bool = false, note: String? = nil) -> String {
        let paint: (String, String) -> String = { text, code in inColor ? "\u{1B}[\(code)m\(text)\u{1B}[0m" : text }
        let names = names
        var parts = rounds.map { round in
            let rows = round.apps.map { app in
                [names[app.identifier]]
                    + [app.heardAfter, app.begunAfter, app.cleanedAfter].map { $0.map(Text.milliseconds) ?? "–" }
                    + [app.summary]
            }
            return paint("sign-out of \(round.user.printable), session \(round.session)", "1") + "\n"
                + Text.table(["APP", "HEARD", "BEGAN", "CLEAN", "STATE"], rows)
        }
        let shown = verdicts.filter { isVerbose || $0.outcome != .holds }
        if isVerbose || !holds { parts.append(stepText) }
        if !shown.isEmpty {
            let rows = shown.map { ["\($0.step)", $0.outcome.rawValue, names[$0.app], $0.expectation, $0.detail] }
            let table = Text.table(["STEP", "RESULT", "APP", "EXPECTATION", "SEEN"], rows).split(separator: "\n")
            // Colours are added last, because their control sequences would break the alignment.
            let lines = zip([nil] + shown.map(\.outcome), table).map { outcome, line in
                switch outcome {
                case nil: paint(String(line), "1")
                case .holds?: String(line)
                case .fails?: paint(String(line), "31")
                case .skipped?: paint(String(line), "33")
                }
            }
            parts.append(lines.joined(separator: "\n"))
        }
        if let failure { parts.append(paint("step \(failure.step) could not be done: \(failure.message)", "31")) }
        let missing = leftOutTexts.map { paint("left out: \($0)", "33") }
        let end = [note, paint(verdict, holds ? "32" : "31")].compactMap(\.self)
        parts.append((missing + end).joined(separator: "\n"))
        return parts.joined(separator: "\n\n") + "\n"
    }

    var leftOutTexts: [String] { leftOut.map { "\(names[$0.app]), because \($0.reason.printable)" } }

    private var stepText: String {
        let rows = zip(1..., steps).map { ["\($0)", stepState($0), $1] }
        return Text.table(["STEP", "", "WHAT"], rows)
    }

    func stepState(_ number: Int) -> String {
        if leftOut.contains(where: { $0.steps.contains(number) }) { return "left out" }
        if let failure, number >= failure.step { return number == failure.step ? "failed" : "skipped" }
        return verdicts.contains { $0.step == number && $0.outcome == .fails } ? "fails" : "done"
    }

    var verdict: String {
        let failed = verdicts.count { $0.outcome == .fails }
        let skipped = verdicts.count { $0.outcome == .skipped }
        if verdicts.isEmpty, failure == nil { return "nothing was looked at: every app is left out" }
        if holds {
            return verdicts.count == 1 ? "the one expectation holds" : "all \(verdicts.count) expectations hold"
        }
        let parts = [
            failed > 0
                ? "\(failed) of \(Text.count(verdicts.count, "expectation")) \(failed == 1 ? "fails" : "fail")" : nil,
            skipped > 0 ? "\(skipped) \(skipped == 1 ? "was" : "were") not looked at" : nil,
            failure.map { "step \($0.step) could not be done" },
        ]
        return parts.compactMap(\.self).joined(separator: ", ")
    }

    /// The result as JSON: ``CheckResult`` and `holds`.
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

extension CheckResult {
    /// The result as JUnit XML, for continuous integration: a test case for each app and expectation, and one for a
    /// failed step.
    public var junit: String {
        let name = Markup.escaped(title)
        let failures = verdicts.count { $0.outcome == .fails }
        let skipped = verdicts.count { $0.outcome == .skipped }
        let errors = failure == nil ? 0 : 1
        let counts =
            "tests=\"\(verdicts.count + errors + leftOut.count)\" failures=\"\(failures)\" errors=\"\(errors)\" "
            + "skipped=\"\(skipped + leftOut.count)\""
        let seconds = Self.seconds(milliseconds)
        var lines = [
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>",
            "<testsuites name=\"\(name)\" \(counts) time=\"\(seconds)\">",
            "  <testsuite name=\"\(name)\" \(counts) time=\"\(seconds)\" timestamp=\"\(Self.timestamp(startedAt))\">",
        ]
        lines += verdicts.flatMap(Self.testCase)
        for app in leftOut {
            lines += [
                "    <testcase classname=\"\(Markup.escaped(app.app))\" name=\"takes part\" time=\"0.000\">",
                "      <skipped message=\"\(Markup.escaped(app.reason))\"/>",
                "    </testcase>",
            ]
        }
        if let failure {
            lines += [
                "    <testcase classname=\"plan\" name=\"step \(failure.step) can be done\" time=\"0.000\">",
                "      <error message=\"\(Markup.escaped(failure.message))\"/>",
                "    </testcase>",
            ]
        }
        for (process, text) in output.sorted(by: { $0.key < $1.key }) where !text.isEmpty {
            lines.append("    <system-err>\(Markup.escaped("--- \(process)\n\(text)"))</system-err>")
        }
        lines += ["  </testsuite>", "</testsuites>"]
        return lines.joined(separator: "\n") + "\n"
    }

    private static func testCase(_ verdict: Verdict) -> [String] {
        let head =
            "    <testcase classname=\"\(Markup.escaped(verdict.app))\" "
            + "name=\"step \(verdict.step): \(Markup.escaped(verdict.expectation))\" time=\"0.000\""
        let detail = Markup.escaped(verdict.detail)
        switch verdict.outcome {
        case .holds: return [head + "/>"]
        case .fails: return [head + ">", "      <failure message=\"\(detail)\"/>", "    </testcase>"]
        case .skipped: return [head + ">", "      <skipped message=\"\(detail)\"/>", "    </testcase>"]
        }
    }

    private static func seconds(_ milliseconds: Double) -> String {
        let whole = Int(milliseconds.rounded())
        let rest = String(whole % 1000)
        return "\(whole / 1000).\(String(repeating: "0", count: 3 - rest.count))\(rest)"
    }

    static func timestamp(_ date: Date) -> String { date.formatted(.iso8601) }
}

@_spi(Extensions) public enum Text {
    static func milliseconds(_ duration: Duration?) -> String { duration.map { milliseconds(number($0)) } ?? "–" }

    /// Formats milliseconds: without decimals from ten on, with one decimal below.
    @_spi(Extensions) public static func milliseconds(_ milliseconds: Double) -> String {
        guard milliseconds.isFinite, abs(milliseconds) < 1e12 else { return "–" }
        let tenths = Int((milliseconds * 10).rounded())
        guard abs(tenths) < 100, tenths % 10 != 0 else { return "\(Int(milliseconds.rounded())) ms" }
        return "\(tenths < 0 ? "-" : "")\(abs(tenths) / 10).\(abs(tenths) % 10) ms"
    }

    /// Formats a count; the plural is formed with an s.
    @_spi(Extensions) public static func count(_ number: Int, _ thing: String) -> String {
        "\(number) \(thing)\(number == 1 ? "" : "s")"
    }

    static func number(_ duration: Duration) -> Double { duration / .milliseconds(1) }

    /// Aligns the columns.
    @_spi(Extensions) public static func table(_ headings: [String], _ rows: [[String]]) -> String {
        TextTable(headings, rows).lines.joined(separator: "\n")
    }
}

enum Markup {
    /// Escapes the text for element content and quoted attributes in HTML and XML 1.0. Characters that XML 1.0 cannot
    /// express become U+FFFD.
    static func escaped(_ text: String) -> String {
        var result = ""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "&": result += "&amp;"
            case "<": result += "&lt;"
            case ">": result += "&gt;"
            case "\"": result += "&quot;"
            case "'": result += "&#39;"
            // In an attribute, a parser would turn the literal character into a space.
            case "\n": result += "&#10;"
            case "\t": result += "&#9;"
            case "\u{20}"..."\u{7E}", "\u{A0}"..."\u{D7FF}", "\u{E000}"..."\u{FFFD}", "\u{10000}"..."\u{10FFFF}":
                result.unicodeScalars.append(scalar)
            default: result += "\u{FFFD}"
            }
        }
        return result
    }

    static func number(_ value: Double) -> String {
        let tenths = Int((value * 10).rounded())
        return "\(tenths < 0 ? "-" : "")\(abs(tenths) / 10).\(abs(tenths) % 10)"
    }
}
