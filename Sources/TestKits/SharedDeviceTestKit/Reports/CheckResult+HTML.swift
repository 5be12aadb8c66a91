import Foundation

extension CheckResult {
    /// As a single page with its style and drawings, and without scripts. It is also well-formed XML.
    public var html: String {
        let title = Markup.escaped(title)
        var parts = [
            "<!DOCTYPE html>",
            "<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">",
            "<head>",
            "<meta charset=\"utf-8\"/>",
            "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>",
            "<meta name=\"color-scheme\" content=\"light dark\"/>",
            "<title>\(title)</title>",
            "<style>\(Self.style)</style>",
            "</head>",
            "<body>",
            "<h1>\(title)</h1>",
            "<p class=\"verdict \(holds ? "good" : "bad")\">\(Markup.escaped(holds ? "✓ \(verdict)" : "✗ \(verdict)"))</p>",
            "<p class=\"note\">\(Self.timestamp(startedAt)), \(Text.milliseconds(milliseconds)) in all.</p>",
        ]
        if let failure {
            parts.append("<h2>Step \(failure.step) could not be done</h2>")
            parts.append("<pre>\(Markup.escaped(failure.message))</pre>")
        }
        for (number, round) in rounds.enumerated() {
            parts.append("<h2>Sign-out of \(Markup.escaped(round.user)), session \(round.session)</h2>")
            parts.append("<figure>\(TimelineDrawing(round, number: number).svg)</figure>")
            parts += [Self.appTable(round), Self.eventTable(round)]
        }
        if !rounds.isEmpty { parts.append(Self.legend) }
        parts += ["<h2>Expectations</h2>", expectationTable]
        for (process, text) in output.sorted(by: { $0.key < $1.key }) where !text.isEmpty {
            parts.append("<h2>What \(Markup.escaped(process)) wrote last</h2><pre>\(Markup.escaped(text))</pre>")
        }
        parts += ["</body>", "</html>"]
        return parts.joined(separator: "\n") + "\n"
    }

    private var expectationTable: String {
        Self.table(
            ["Step", "Result", "App", "Expectation", "Seen"],
            verdicts.map { verdict in
                let sign =
                    switch verdict.outcome {
                    case .holds: ("✓ holds", "good short")
                    case .fails: ("✗ fails", "bad short")
                    case .skipped: ("– skipped", "dim short")
                    }
                return [
                    ("\(verdict.step)", "number"), sign, (verdict.app, "wide"), (verdict.expectation, "wide"),
                    (verdict.detail, "wide"),
                ]
            }
        )
    }

    private static func appTable(_ round: Round) -> String {
        table(
            ["App", "Heard", "Began", "Clean", "Seen clean", "State"],
            round.apps.map { app in
                [(app.identifier, "wide")]
                    + [app.heardAfter, app.begunAfter, app.cleanedAfter, app.seenCleanAfter]
                    .map { ($0.map(Text.milliseconds) ?? "–", "number") }
                    + [(app.summary, app.isClean ? "good wide" : "bad wide")]
            }
        )
    }

    private static func eventTable(_ round: Round) -> String {
        let rows = round.events.map { event in
            [(Text.milliseconds(event.milliseconds), "number"), (event.lane, "wide"), (event.text, "wide")]
        }
        return "<details><summary>All that happened since the sign-in</summary>"
            + table(["When", "Who", "What"], rows) + "</details>"
    }

    private static func table(_ head: [String], _ rows: [[(text: String, style: String)]]) -> String {
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
        return "<table><thead><tr>\(heads)</tr></thead><tbody>\n\(lines.joined(separator: "\n"))\n</tbody></table>"
    }

    private static var legend: String {
        let kinds: [(DeviceEvent.Kind, String)] = [
            (.signOut, "sign-out"), (.broadcast, "broadcast"), (.told, "asks and is told"), (.begun, "began"),
            (.finished, "clean"),
            (.failed, "could not clean up"), (.stopped, "stopped"), (.continued, "goes on"), (.killed, "killed"),
            (.started, "starts"), (.ended, "ends"), (.spoofed, "spoofed broadcast"),
        ]
        let items = kinds.map { kind, text in "<b>\(TimelineDrawing.sign(kind).letter)</b> \(text)" }
        return
            "<p class=\"note\">\(items.joined(separator: ", ")). Hatched: stopped, or not there. Light bar: has not heard of it; "
            + "dark bar: cleans up.</p>\n<p class=\"note\">Heard, began and clean are the times of the broker's ledger, from the "
            + "sign-out's commit to the app's question or report. Seen clean, faults, and starts and ends of processes are what "
            + "the kit saw itself.</p>"
    }

    private static let style = """

        :root { --ink: #1b1f24; --paper: #ffffff; --dim: #5c6670; --line: #d5dae0; --good: #11713a; --bad: #b3261e;
          --told: #7a5200; --account: #1f4fa3; --fault: #8a1c7c; --owed: #f3dca6; --cleaning: #9cc4f2; }
        @media (prefers-color-scheme: dark) {
          :root { --ink: #e6e9ec; --paper: #14171a; --dim: #9aa4ae; --line: #363d44; --good: #5fd08c; --bad: #ff8a80;
            --told: #f0c060; --account: #8fb8ff; --fault: #f09ae4; --owed: #57471f; --cleaning: #28507c; } }
        @media print {
          :root { --ink: #000000; --paper: #ffffff; --dim: #333333; --line: #999999; --good: #000000; --bad: #000000;
            --told: #000000; --account: #000000; --fault: #000000; --owed: #eeeeee; --cleaning: #bbbbbb; }
          table, figure { break-inside: avoid; } }
        body { margin: 2rem auto; max-width: 62rem; padding: 0 1rem; font: 15px/1.5 system-ui, sans-serif; color: var(--ink);
          background: var(--paper); }
        h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
        table { border-collapse: collapse; width: 100%; font-size: 0.9rem; }
        th, td { text-align: left; vertical-align: top; padding: 0.3rem 0.6rem 0.3rem 0; border-bottom: 1px solid var(--line); }
        th { white-space: nowrap; } td { overflow-wrap: anywhere; min-width: 2.5rem; } td.wide { min-width: 11rem; }
        th.number, td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
        td.short { white-space: nowrap; }
        .good { color: var(--good); } .bad { color: var(--bad); } .dim, .note { color: var(--dim); }
        .verdict { font-size: 1.1rem; font-weight: 600; }
        figure { margin: 0 0 1rem; overflow-x: auto; } svg { width: 100%; min-width: 40rem; height: auto; display: block; }
        pre { white-space: pre-wrap; overflow-wrap: anywhere; padding: 0.6rem; border: 1px solid var(--line); }
        svg text { font: 12px system-ui, sans-serif; fill: var(--ink); }
        svg .lane { text-anchor: end; } svg .time { text-anchor: middle; fill: var(--dim); font-size: 11px; }
        svg .tick { stroke: var(--line); } svg .origin { stroke: var(--account); stroke-width: 1.5; }
        svg .base { stroke: var(--line); stroke-dasharray: 2 3; }
        svg .owed { fill: var(--owed); } svg .cleaning { fill: var(--cleaning); } svg .hatch { fill: var(--fault); }
        svg .stop { stroke: var(--fault); stroke-width: 0.7; }
        svg .mark circle { fill: var(--paper); stroke-width: 1.6; stroke: currentColor; }
        svg .mark text { text-anchor: middle; font-size: 10.5px; font-weight: 700; fill: currentColor; }
        svg .told { color: var(--told); } svg .account { color: var(--account); } svg .fault { color: var(--fault); }
        svg .life { color: var(--dim); } svg .good { color: var(--good); } svg .bad { color: var(--bad); }

        """
}
