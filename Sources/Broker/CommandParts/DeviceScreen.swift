import DeviceConfiguration
package import FoundationEssentials
@_spi(Extensions) import SharedDevice

/// The console as lines of a terminal. Pure.
package struct DeviceScreen {
    package enum Footer: Sendable, Equatable {
        /// Nothing, for output without a keyboard.
        case none
        case keys
        case question(UInt64)
        case message(String)
    }

    let view: DeviceView
    let now: Date
    let columns: Int
    let clock: (Date) -> String
    let names: AppNames

    /// - Parameters:
    ///   - now: The time by the device's clock.
    ///   - clock: Formats a time by the local clock.
    package static func lines(
        _ view: DeviceView,
        at now: Date,
        columns: Int,
        rows: Int? = nil,
        footer: Footer = .none,
        clock: @escaping (Date) -> String
    ) -> [ScreenLine] {
        let keys = view.device?.apps.map(\.identifier) ?? []
        let others = (view.round?.apps.map(\.identifier) ?? []) + view.entries.compactMap(\.app)
        let names = AppNames(keys + others + (view.device?.signInHeldFor ?? []))
        let screen = DeviceScreen(view: view, now: now, columns: max(1, columns), clock: clock, names: names)
        let bottom = screen.footer(footer)
        let space = rows.map { max(0, $0 - bottom.count) }
        let content = screen.content(rows: space)
        return (content.prefix(space ?? content.count) + bottom.suffix(rows ?? bottom.count))
            .map { $0.clipped(to: screen.columns) }
    }

    private func content(rows: Int?) -> [ScreenLine] {
        let head = head()
        guard view.device != nil else { return head }
        let known = [round(), apps(), log()].filter { !$0.isEmpty }
        // The known data may be out of date.
        let sections = view.link == .responds ? known : known.map { $0.map { $0.dimmed() } }
        guard let rows else { return head + sections.flatMap { [ScreenLine()] + $0 } }
        var lines = head
        for (index, section) in sections.enumerated() {
            let left = rows - lines.count - 1
            // Leaves half of the remaining rows to later sections, and takes the rows that those do not need.
            let others = sections[(index + 1)...].reduce(0) { $0 + $1.count + 1 }
            lines += Self.shortened(section, to: min(left, max(left / 2, left - others)))
        }
        return lines
    }

    /// The section below an empty line. If it is cut, its last line says how many lines are missing.
    private static func shortened(_ section: [ScreenLine], to rows: Int) -> [ScreenLine] {
        guard rows >= 2 else { return [] }
        guard section.count > rows else { return [ScreenLine()] + section }
        let missing = section.count - rows + 1
        return [ScreenLine()] + section.prefix(rows - 1) + [ScreenLine("  … \(missing) more", .dim)]
    }

    // MARK: Who is signed in

    private func head() -> [ScreenLine] {
        let device = view.device
        let title = device?.organization.map { "Shared device of \($0)" } ?? "Shared device"
        let time = clock(now)
        var first = ScreenLine(title, .strong).clipped(to: max(1, columns - time.count - 2))
        first.pad(to: columns - time.count)
        first.add(time, .dim)
        var lines = [first] + session()
        guard let device else { return lines }
        if view.link == .responds {
            lines += wrapped(detail(device), .plain)
            // Activity moves the end after inactivity without a response, so that end is shown as a warning only.
            if let end = device.sessionEnd, end.isSoon || end.reason != .inactivity {
                let verb = end.locks ? "is locked" : "ends"
                lines += wrapped("The session \(verb) \(Words.end(end, clock: clock)).", end.isSoon ? .waits : .plain)
            }
        }
        lines += wrapped(Words.policy(of: device), .dim)
        for problem in device.problems { lines += wrapped("⚠ \(problem.text)", .bad) }
        return lines
    }

    private func session() -> [ScreenLine] {
        switch (view.link, view.device) {
        case (.asking, _): [ScreenLine("Asking the broker …", .dim)]
        case (.denied, _):
            wrapped(
                "? You may not see this device: run it as root, or be one of the configuration’s “operators”.",
                .bad
            )
        case (.gone, nil): wrapped("? Unknown: the broker does not respond.", .bad)
        case (.gone, let device?):
            wrapped(
                "? Unknown: the broker does not respond. At its last response, \(clock(device.time)), "
                    + "\(device.person ?? "no account") was signed in.",
                .bad
            )
        case (.responds, let device?) where device.mode != "shared": [ScreenLine("This device is personal", .strong)]
        case (.responds, let device):
            [
                ScreenLine(
                    device?.person.map { "● \($0)\(device?.isLocked == true ? ", locked" : "")" }
                        ?? "○ No account is signed in",
                    .strong
                )
            ]
        }
    }

    private func detail(_ device: ObservedDevice) -> String {
        if device.account != nil {
            guard let since = device.signedInAt else { return "Signed in." }
            return
                "Signed in since \(clock(since)), for \(Words.span(max(1, now.timeIntervalSince(since).rounded(.down))))."
        }
        guard device.signInHeldFor.isEmpty else {
            return "The next sign-in waits for \(device.signInHeldFor.map { names[$0] }.joined(separator: ", "))."
        }
        return "The device is ready for the next person."
    }

    private func wrapped(_ text: String, _ style: ScreenLine.Style) -> [ScreenLine] {
        ScreenLine.wrapped(text, columns: columns).prefix(3).map { ScreenLine($0, style) }
    }

    // MARK: The round, the apps, the log

    private func round() -> [ScreenLine] {
        guard let round = view.round else { return [] }
        // Without a response, the state of pending cleanups is unknown, so time stops.
        let time = view.link == .responds ? now : view.device?.time ?? now
        let waterfall = Waterfall(round, at: time) { names[$0] }
        let summary = Waterfall.summary(of: round, at: time)
        var title = ScreenLine("CLEANUP", .strong)
        title.add(" of session \(round.session), which ended at \(clock(round.endedAt))", .dim)
        var lines = [title] + wrapped(summary.text, summary.style)
        guard !round.apps.isEmpty else { return lines }
        let name = min(24, waterfall.rows.map { ScreenLine.columns($0.name) }.max() ?? 0)
        let state = waterfall.rows.map { ScreenLine.columns($0.state) }.max() ?? 0
        let start = 2 + name + 2 + state + 2
        // On a narrow screen each row has two lines.
        let isWide = columns - start >= 20
        let indent = isWide ? start : 2
        let track = max(1, columns - indent)
        for row in waterfall.rows {
            var line = ScreenLine("  ")
            line.add(row.name)
            line = line.clipped(to: 2 + name)
            line.pad(to: 2 + name + 2)
            line.add(row.state, row.style)
            if !isWide {
                lines.append(line)
                line = ScreenLine()
            }
            line.pad(to: indent)
            line.add(waterfall.bar(of: row, columns: track), row.style)
            lines.append(line)
        }
        var axis = ScreenLine()
        let end = Words.span(waterfall.length)
        axis.pad(to: indent)
        axis.add("sign-out", .dim)
        axis.pad(to: columns - end.count)
        axis.add(end, .dim)
        return lines + [axis]
    }

    private func apps() -> [ScreenLine] {
        guard let apps = view.device?.apps, !apps.isEmpty else { return [] }
        let width = min(24, apps.map { ScreenLine.columns(names[$0.identifier]) }.max() ?? 0)
        let rows = apps.flatMap { app -> [ScreenLine] in
            var line = ScreenLine("  ")
            line.add(names[app.identifier])
            line = line.clipped(to: 2 + width)
            line.pad(to: 2 + width + 2)
            line.add(app.isRunning ? "● runs        " : "○ does not run", app.isRunning ? .good : .dim)
            if app.holdsData { line.add("  ▪ holds data", .strong) }
            if let first = app.owes.first {
                let what = app.owes.count == 1 ? "session \(first)" : Words.count(app.owes.count, "session")
                line.add("  ! owes \(what)", .bad)
            }
            return [line] + (app.startProblem.map { [ScreenLine("    \($0)", .bad)] } ?? [])
        }
        return [ScreenLine("APPS", .strong)] + rows
    }

    /// Newest first, so that the oldest entries are cut.
    private func log() -> [ScreenLine] {
        guard !view.entries.isEmpty else { return [] }
        let width = min(12, view.entries.map { ScreenLine.columns($0.event) }.max() ?? 0)
        let rows = view.entries.reversed().map { entry in
            var line = ScreenLine("  \(clock(entry.at))  ", .dim)
            let place = line.width
            line.add(entry.event, Self.style(entry.event))
            line.pad(to: place + width)
            if let session = entry.session { line.add("  session \(session)", .dim) }
            if let app = entry.app { line.add("  \(names[app])") }
            if let detail = entry.detail { line.add("  \(detail)", .dim) }
            return line
        }
        return [ScreenLine("LOG", .strong)] + rows
    }

    private static func style(_ event: String) -> ScreenLine.Style {
        switch event {
        case "failed", "refused", "waived", "enforced", "not-enforced": .bad
        case "expired", "interrupted": .waits
        case "completed", "finished": .good
        default: .plain
        }
    }

    // MARK: The bottom

    private func footer(_ footer: Footer) -> [ScreenLine] {
        switch footer {
        case .none: return []
        case .keys: return [ScreenLine(), ScreenLine(view.openSession != nil ? "s sign out   q quit" : "q quit", .dim)]
        case .question(let session):
            guard view.openSession == session, let device = view.device, let person = device.person else {
                return self.footer(.keys)
            }
            let question = wrapped("Sign \(person) out? \(Words.consequence(of: device))", .bad)
            return [ScreenLine()] + question + [ScreenLine("y yes   n no", .strong)]
        case .message(let text): return [ScreenLine()] + wrapped(text, .bad)
        }
    }
}
