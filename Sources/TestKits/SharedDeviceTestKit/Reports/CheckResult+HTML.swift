import FoundationEssentials
@_spi(Extensions) import SharedDevice

extension CheckResult {
    /// The result as a single page that contains its style and the console's code, which draws the timelines. All drawn
    /// data is also in tables, for readers that run no scripts. The page is also well-formed XML.
    public var html: String {
        let title = Markup.escaped(title)
        let nonce = TimelinePage.nonce()
        var parts = [
            "<!DOCTYPE html>",
            "<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">",
            "<head>",
            "<meta charset=\"utf-8\"/>",
            "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>",
            "<meta name=\"color-scheme\" content=\"light dark\"/>",
            // The policy blocks foreign scripts and external resources, whatever an app has written.
            "<meta http-equiv=\"Content-Security-Policy\" "
                + "content=\"\(Self.policy(nonce))\"/>",
            "<title>\(title)</title>",
            "<style>/*<![CDATA[*/\n\(TimelinePage.style)\(Self.style)/*]]>*/</style>",
            "</head>",
            "<body>",
            "<h1>\(title)</h1>",
            "<p class=\"verdict \(holds ? "good" : "bad")\">\(Markup.escaped(holds ? "✓ \(verdict)" : "✗ \(verdict)"))</p>",
            "<p class=\"note\">\(Self.timestamp(startedAt)), \(Text.milliseconds(milliseconds)) in all.</p>",
        ]
        parts += leftOutTexts.map { "<p class=\"note\">Left out: \(Markup.escaped($0))</p>" }
        if let failure {
            parts.append("<h2>Step \(failure.step) could not be done</h2>")
            parts.append("<pre>\(Markup.escaped(failure.message))</pre>")
        }
        let names = names
        for (number, round) in rounds.enumerated() {
            parts.append("<h2>Sign-out of \(Markup.escaped(round.user)), session \(round.session)</h2>")
            parts.append("<figure><div class=\"drawing\" data-round=\"\(number)\"></div>")
            parts.append("<noscript><p class=\"note\">A script draws this. The tables have all of it.</p></noscript>")
            parts.append("<figcaption>\(Self.origins)</figcaption></figure>")
            parts += [Self.appTable(round, names), Self.eventTable(round, names)]
        }
        parts += ["<h2>Expectations</h2>", expectationTable(names), "<h2>Steps of the plan</h2>", stepTable]
        for (process, text) in output.sorted(by: { $0.key < $1.key }) where !text.isEmpty {
            parts.append("<h2>What \(Markup.escaped(names[process])) wrote last</h2><pre>\(Markup.escaped(text))</pre>")
        }
        parts.append("<script id=\"result\" type=\"application/json\">\(TimelinePage.content(of: self))</script>")
        parts.append("<script type=\"module\" nonce=\"\(nonce)\">//<![CDATA[\n\(TimelinePage.script)\n//]]></script>")
        parts += ["</body>", "</html>"]
        return parts.joined(separator: "\n") + "\n"
    }

    private static func policy(_ nonce: String) -> String {
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'nonce-\(nonce)'"
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
                    return "<td\(style)>\(Markup.escaped(cell.text))</td>"
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
