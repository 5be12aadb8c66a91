import ArgumentParser
import CommandParts
import DBus
import FoundationEssentials
import Glibc
import SharedDevice

struct WatchCommand: ReportingCommand {
    static let configuration = CommandConfiguration(
        commandName: "watch",
        abstract: "Shows the device on the terminal, and keeps what it shows up to date.",
        discussion: """
            Who is signed in, the last cleanup as a waterfall (T told, B begun, F clean, ! failed, W waived, E enforced), the \
            apps, the log. Keys: s signs out, after a question; q ends. It needs the right to see the device: root, an \
            operator of the managed configuration, or a user whom polkit permits it. While the broker does not respond, who is signed \
            in is unknown.

            Where standard output is no terminal, it is written anew at each change. With --json each change is one line: \
            {"broker":"responds","device":{…},"round":{…}}; other values of "broker" are "gone" and "denied".
            """
    )

    @Flag(help: "One JSON object for each change, for programs.")
    var json = false

    @OptionGroup var state: NoStateOption
    @OptionGroup var bus: BusOptions

    func execute() throws {
        // A closed pipe becomes an error of the write.
        signal(SIGPIPE, SIG_IGN)
        let screen = json ? nil : TerminalScreen()
        let events = try WatchEvents(hasScreen: screen != nil)
        let watch = DeviceWatch(try bus.connect(), onChange: events.wake)
        watch.start(withLog: !json)
        if var screen { try show(watch, events, on: &screen) } else { try write(watch, events) }
    }

    /// The time of day, with the date unless it is today.
    private static func clock(at now: Date) -> (Date) -> String {
        let today = Form.time(now).prefix(10)
        return { date in
            let text = Form.time(date)
            return text.hasPrefix(today) ? String(text.dropFirst(11)) : text
        }
    }

    // MARK: To a file or a program

    private struct Line: Encodable {
        let broker: DeviceView.Link
        let device: ObservedDevice?
        let round: Round?
    }

    private func write(_ watch: DeviceWatch, _ events: WatchEvents) throws {
        var last = DeviceView()
        while true {
            _ = events.next(withKeys: false, patience: -1)
            let view = watch.view
            // A response after the longest wait differs only in its time.
            guard
                view.link != last.link || view.device?.revision != last.device?.revision || view.round != last.round
                    || !json && view.entries != last.entries
            else { continue }
            last = view
            if json {
                let round = view.round.map { Round($0, isRunning: \.isRunning) }
                try emit(Form.json(Line(broker: view.link, device: view.device, round: round), pretty: false))
            } else {
                let now = Date()
                let lines = DeviceScreen.lines(view, at: now, columns: 100, clock: Self.clock(at: now))
                try emit(lines.map { $0.text(isColoured: false) }.joined(separator: "\n") + "\n")
            }
        }
    }

    // MARK: On a terminal

    private func show(_ watch: DeviceWatch, _ events: WatchEvents, on screen: inout TerminalScreen) throws {
        screen.enter()
        defer { screen.leave() }
        var footer = DeviceScreen.Footer.keys
        while true {
            let size = TerminalScreen.currentSize()
            let now = Date()
            // The session has changed since the question, so the question is withdrawn.
            if case .question(let session) = footer, watch.view.openSession != session { footer = .keys }
            let shown = footer == .keys ? watch.message.map { .message($0) } ?? footer : footer
            let lines = DeviceScreen.lines(
                watch.view,
                at: now,
                columns: size.columns,
                rows: size.rows,
                footer: screen.hasKeys ? shown : .none,
                clock: Self.clock(at: now)
            )
            try screen.draw(lines, size: size)
            // Redraw each second, because the durations on the screen grow.
            switch events.next(withKeys: screen.hasKeys, patience: 1000) {
            case .changed, .time, .signal(SIGWINCH): break
            case .closed: return
            case .signal(let signal):
                screen.leave()
                WatchEvents.obey(signal)
                // The program was stopped and continues.
                screen.enter()
            case .keys(let bytes):
                watch.dismissMessage()
                guard let next = Self.footer(after: bytes, footer, watch) else { return }
                footer = next
            }
        }
    }

    /// - Returns: The next footer; `nil` ends the command.
    private static func footer(
        after keys: [UInt8],
        _ footer: DeviceScreen.Footer,
        _ watch: DeviceWatch
    ) -> DeviceScreen.Footer? {
        // A function key sends several bytes, starting with ESC. Other groups of bytes were pasted.
        guard keys.count == 1, let key = keys.first else { return .keys }
        switch (UnicodeScalar(key), footer) {
        case ("y", .question(let session)), ("Y", .question(let session)): watch.signOut(session)
        case (_, .question): break
        case ("q", _): return nil
        case ("s", _): if let session = watch.view.openSession { return .question(session) }
        default: break
        }
        return .keys
    }
}
