import Basics
public import FoundationEssentials
@_spi(Extensions) import SharedDevice

/// The result of a plan. The property names are the keys of the JSON report; times are in milliseconds.
public struct CheckResult: Sendable, Hashable, Codable {
    /// One expectation of one app.
    public struct Verdict: Sendable, Hashable, Codable {
        /// The outcome of an expectation.
        public enum Outcome: String, Sendable, Codable {
            /// It was checked, and holds or fails.
            case holds, fails
            /// It was not checked, because an earlier step failed.
            case skipped
        }

        /// The app's identifier.
        public let app: String
        /// The expectation, in words.
        public let expectation: String
        /// The step of the plan, counted from 1.
        public let step: Int
        /// The outcome.
        public let outcome: Outcome
        /// The observation.
        public let detail: String
    }

    /// A sign-out, and its propagation to the apps.
    public struct Round: Sendable, Hashable, Codable {
        /// One app of a round; see ``PropagationReport/App``. Times are in milliseconds since the sign-out.
        public struct App: Sendable, Hashable, Codable {
            /// The app's identifier.
            public let identifier: String
            /// Whether it has reported that the data is deleted. True also if it took no part and had no process at the
            /// sign-out.
            public let isClean: Bool
            /// When the ledger says that it was told of the sign-out; `nil` if it was not.
            public let heardAfter: Double?
            /// When the ledger says that it began; `nil` if it did not report that.
            public let begunAfter: Double?
            /// When the ledger says that it reported success or failure; `nil` before.
            public let cleanedAfter: Double?
            /// When the kit saw its report of a finished cleanup; `nil` before.
            public let seenCleanAfter: Double?
            /// Its result in words.
            public let summary: String
        }

        /// The session that ended, by the epoch of its sign-in.
        public let session: UInt64
        /// The user who was signed out.
        public let user: String
        /// The apps, in the order of the plan.
        public let apps: [App]
        /// The events since the sign-in, in chronological order.
        public let events: [DeviceEvent]
        /// The time from the sign-out to the kit's last observation.
        public let observed: Double

        init(_ report: PropagationReport) {
            session = report.session
            user = report.user
            apps = report.apps.map { app in
                App(
                    identifier: app.identifier,
                    isClean: app.isClean,
                    heardAfter: app.heardAfter.map(Text.number),
                    begunAfter: app.begunAfter.map(Text.number),
                    cleanedAfter: app.cleanedAfter.map(Text.number),
                    seenCleanAfter: app.seenCleanAfter.map(Text.number),
                    summary: app.summary
                )
            }
            events = report.events
            observed = Text.number(report.observedFor)
        }
    }

    /// An app that this machine cannot run.
    public struct LeftOut: Sendable, Hashable, Codable {
        /// The app's identifier.
        public let app: String
        /// The reason in words, with the command that failed.
        public let reason: String
        /// The steps that concern only this app, counted from 1; they are left out, too.
        public let steps: [Int]
    }

    /// A step that failed.
    public struct Failure: Sendable, Hashable, Codable {
        /// The step of the plan, counted from 1.
        public let step: Int
        /// The operation and its failure.
        public let message: String
    }

    /// The plan's title.
    public let title: String
    /// The time at which the run began.
    public let startedAt: Date
    /// The duration of the run.
    public let milliseconds: Double
    /// The steps of the plan, in words.
    public let steps: [String]
    /// The expectations, in the order of the plan.
    public let verdicts: [Verdict]
    /// The sign-outs, in order.
    public let rounds: [Round]
    /// The step that failed; `nil` if all succeeded.
    public let failure: Failure?
    /// The apps that took no part, because this machine lacks their dependencies.
    public let leftOut: [LeftOut]
    /// The end of the output of each process, at most 4000 characters, by the app's identifier or
    /// `shared-device-broker`; empty if everything holds.
    public let output: [String: String]

    /// Whether all steps were done and all expectations hold, not counting apps that are left out. False if no
    /// expectation was checked.
    public var holds: Bool { failure == nil && !verdicts.isEmpty && verdicts.allSatisfy { $0.outcome == .holds } }
}

extension CheckResult {
    var names: AppNames {
        let apps = verdicts.map(\.app) + rounds.flatMap { $0.apps.map(\.identifier) } + leftOut.map(\.app)
        return AppNames(apps, reserved: DeviceEvent.lanes)
    }

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
        var parts: [String] = []
        if failed > 0 {
            parts.append("\(failed) of \(Text.count(verdicts.count, "expectation")) \(failed == 1 ? "fails" : "fail")")
        }
        if skipped > 0 { parts.append("\(skipped) \(skipped == 1 ? "was" : "were") not looked at") }
        if let failure { parts.append("step \(failure.step) could not be done") }
        return parts.joined(separator: ", ")
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
        let name = title.markup
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
        for verdict in verdicts {
            let outcome: String? =
                switch verdict.outcome {
                case .holds: nil
                case .fails: "failure"
                case .skipped: "skipped"
                }
            let name = "step \(verdict.step): \(verdict.expectation)"
            lines += Self.testCase(verdict.app, name, outcome, verdict.detail)
        }
        for app in leftOut { lines += Self.testCase(app.app, "takes part", "skipped", app.reason) }
        if let failure { lines += Self.testCase("plan", "step \(failure.step) can be done", "error", failure.message) }
        for (process, text) in output.sorted(by: { $0.key < $1.key }) where !text.isEmpty {
            lines.append("    <system-err>\("--- \(process)\n\(text)".markup)</system-err>")
        }
        lines += ["  </testsuite>", "</testsuites>"]
        return lines.joined(separator: "\n") + "\n"
    }

    /// - Parameter outcome: the element with the message; `nil` for a success.
    private static func testCase(_ app: String, _ name: String, _ outcome: String?, _ message: String) -> [String] {
        let head = "    <testcase classname=\"\(app.markup)\" name=\"\(name.markup)\" time=\"0.000\""
        guard let outcome else { return [head + "/>"] }
        return [head + ">", "      <\(outcome) message=\"\(message.markup)\"/>", "    </testcase>"]
    }

    private static func seconds(_ milliseconds: Double) -> String {
        let whole = Int(milliseconds.rounded())
        let rest = String(whole % 1000)
        return "\(whole / 1000).\(String(repeating: "0", count: 3 - rest.count))\(rest)"
    }

    private static func timestamp(_ date: Date) -> String { date.formatted(.iso8601) }
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

extension CheckResult {
    /// The result as a single page that contains its style and the console's code, which draws the timelines. All drawn
    /// data is also in tables, for readers that run no scripts. The page is also well-formed XML.
    public var html: String {
        let title = title.markup
        let nonce = TimelinePage.nonce()
        var parts = [
            "<!DOCTYPE html>",
            "<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">",
            "<head>",
            "<meta charset=\"utf-8\"/>",
            "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>",
            "<meta name=\"color-scheme\" content=\"light dark\"/>",
            // The policy blocks foreign scripts and external resources, whatever an app has written.
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                + "style-src 'unsafe-inline'; script-src 'nonce-\(nonce)'\"/>",
            "<title>\(title)</title>",
            "<style>/*<![CDATA[*/\n\(TimelinePage.style)\(Self.style)/*]]>*/</style>",
            "</head>",
            "<body>",
            "<h1>\(title)</h1>",
            "<p class=\"verdict \(holds ? "good" : "bad")\">\((holds ? "✓ \(verdict)" : "✗ \(verdict)").markup)</p>",
            "<p class=\"note\">\(Self.timestamp(startedAt)), \(Text.milliseconds(milliseconds)) in all.</p>",
        ]
        parts += leftOutTexts.map { "<p class=\"note\">Left out: \($0.markup)</p>" }
        if let failure {
            parts.append("<h2>Step \(failure.step) could not be done</h2>")
            parts.append("<pre>\(failure.message.markup)</pre>")
        }
        let names = names
        for (number, round) in rounds.enumerated() {
            parts.append("<h2>Sign-out of \(round.user.markup), session \(round.session)</h2>")
            parts.append("<figure><div class=\"drawing\" data-round=\"\(number)\"></div>")
            parts.append("<noscript><p class=\"note\">A script draws this. The tables have all of it.</p></noscript>")
            parts.append("<figcaption>\(Self.origins)</figcaption></figure>")
            parts += [Self.appTable(round, names), Self.eventTable(round, names)]
        }
        parts += ["<h2>Expectations</h2>", expectationTable(names), "<h2>Steps of the plan</h2>", stepTable]
        for (process, text) in output.sorted(by: { $0.key < $1.key }) where !text.isEmpty {
            parts.append("<h2>What \(names[process].markup) wrote last</h2><pre>\(text.markup)</pre>")
        }
        parts.append("<script id=\"result\" type=\"application/json\">\(TimelinePage.content(of: self))</script>")
        parts.append("<script type=\"module\" nonce=\"\(nonce)\">//<![CDATA[\n\(TimelinePage.script)\n//]]></script>")
        parts += ["</body>", "</html>"]
        return parts.joined(separator: "\n") + "\n"
    }

    private var stepTable: String {
        Self.table(
            "Steps of the plan and their results",
            ["Step", "Result", "What"],
            zip(1..., steps).map { number, text in
                let state = stepState(number)
                return [
                    ("\(number)", "number"), (state, ["done", "left out"].contains(state) ? "short" : "bad short"),
                    (text, "wide"),
                ]
            }
        )
    }

    private func expectationTable(_ names: AppNames) -> String {
        Self.table(
            "The expectations of each app, and the observations",
            ["Step", "Result", "App", "Expectation", "Seen"],
            verdicts.map { verdict in
                let sign =
                    switch verdict.outcome {
                    case .holds: ("✓ holds", "good short")
                    case .fails: ("✗ fails", "bad short")
                    case .skipped: ("– skipped", "dim short")
                    }
                return [
                    ("\(verdict.step)", "number"), sign, (names[verdict.app], "wide"), (verdict.expectation, "wide"),
                    (verdict.detail, "wide"),
                ]
            }
        )
    }

    private static func appTable(_ round: Round, _ names: AppNames) -> String {
        table(
            "When each app heard of the sign-out and was clean",
            ["App", "Heard", "Began", "Clean", "Seen clean", "State"],
            round.apps.map { app in
                [(names[app.identifier], "wide")]
                    + [app.heardAfter, app.begunAfter, app.cleanedAfter, app.seenCleanAfter]
                    .map { ($0.map(Text.milliseconds) ?? "–", "number") }
                    + [(app.summary, app.isClean ? "good wide" : "bad wide")]
            }
        )
    }

    private static func eventTable(_ round: Round, _ names: AppNames) -> String {
        let rows = round.events.map { event in
            [(Text.milliseconds(event.milliseconds), "number"), (names[event.lane], "wide"), (event.text, "wide")]
        }
        return "<details><summary>The same as a table: all that happened since the sign-in</summary>"
            + table("All events since the sign-in", ["When", "Who", "What"], rows) + "</details>"
    }

    /// - Parameter caption: a caption for screen readers; sighted readers have the heading.
    private static func table(_ caption: String, _ head: [String], _ rows: [[(text: String, style: String)]]) -> String
    {
        let heads = head.enumerated().map { column, name in
            let isNumber = rows.first.map { $0[column].style == "number" } ?? false
            return "<th scope=\"col\"\(isNumber ? " class=\"number\"" : "")>\(name)</th>"
        }.joined()
        let lines = rows.map { row in
            "<tr>"
                + row.map { cell in
                    let style = cell.style.isEmpty ? "" : " class=\"\(cell.style)\""
                    return "<td\(style)>\(cell.text.markup)</td>"
                }.joined() + "</tr>"
        }
        return
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"\(caption)\"><table><caption>\(caption)</caption><thead><tr>\(heads)</tr></thead><tbody>\n\(lines.joined(separator: "\n"))\n</tbody></table></div>"
    }

    private static let origins =
        "Heard, began and clean are the times of the broker's ledger, from the sign-out's commit to the app's request or report. Seen "
        + "clean, faults, and starts and ends of processes are what the kit saw itself."

    /// The rules in addition to the console's style.
    private static let style = """

        @media print {
          :root, [data-theme="dark"] { --ink: #000000; --paper: #ffffff; --ground: #ffffff; --dim: #333333; --line: #999999; --good: #000000;
            --bad: #000000; --told: #000000; --account: #000000; --fault: #000000; --owed: #eeeeee; --cleaning: #bbbbbb; }
          table, figure { break-inside: avoid; } .drawing button.small { display: none; } }
        html { background: var(--paper); }
        body { margin: 2rem auto; max-width: 62rem; padding: 0 1rem; background: var(--paper); }
        h1, h2 { overflow-wrap: anywhere; } h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin: 2rem 0 0.5rem; }
        td { overflow-wrap: anywhere; } td.wide { min-width: 11rem; } th.number, td.number { text-align: right; }
        .note { color: var(--dim); } .verdict { font-size: 1.1rem; font-weight: 600; }
        figure { margin: 0 0 1rem; } figcaption { color: var(--dim); font-size: 0.9rem; }
        caption { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
        summary { cursor: pointer; } pre { white-space: pre-wrap; overflow-wrap: anywhere; padding: 0.6rem; border: 1px solid var(--line); }
        @media (max-width: 44rem) { body { margin: 1rem auto; padding: 0 0.75rem; } td.wide { min-width: 8rem; } }

        """
}
