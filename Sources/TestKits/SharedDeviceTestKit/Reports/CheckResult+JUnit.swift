import Foundation

extension CheckResult {
    /// As JUnit XML, which continuous integration reads: a test case for each app and expectation, and one for each step that could not be
    /// done.
    public var junit: String {
        let name = Markup.escaped(title)
        let failures = verdicts.count { $0.outcome == .fails }
        let skipped = verdicts.count { $0.outcome == .skipped }
        let errors = failure == nil ? 0 : 1
        let counts =
            "tests=\"\(verdicts.count + errors)\" failures=\"\(failures)\" errors=\"\(errors)\" skipped=\"\(skipped)\""
        let seconds = Self.seconds(milliseconds)
        var lines = [
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>",
            "<testsuites name=\"\(name)\" \(counts) time=\"\(seconds)\">",
            "  <testsuite name=\"\(name)\" \(counts) time=\"\(seconds)\" timestamp=\"\(Self.timestamp(startedAt))\">",
        ]
        lines += verdicts.flatMap(Self.testCase)
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

    static func timestamp(_ date: Date) -> String {
        let formatter = ISO8601DateFormatter()
        return formatter.string(from: date)
    }
}
