import DBusTransport
import Glibc
import NotifyCenter

/// The main thread while it waits: prints the events of the registrations and of the monitor.
final class Reporter {
    /// How often the kinds `check` and `plain` are checked, as on Darwin.
    private static let pollingPeriod = Duration.milliseconds(100)

    private let style: Style
    private let inbox: Inbox<Arrival>
    private let watchers: Watchers
    private var monitor: Monitor?
    private var readers: [CInt: TokenReader] = [:]
    private var nextPolling = ContinuousClock.now
    private let explain: (Failure) -> Void

    /// - Parameters:
    ///   - style: how events are printed.
    ///   - signals: those that registrations will use.
    ///   - explain: is told once why states cannot be read.
    /// - Throws: ``DBusError/Code/noResources`` without descriptors.
    init(
        style: Style,
        signals: Set<CInt>,
        explain: @escaping (Failure) -> Void
    ) throws(DBusError) {
        self.style = style
        let inbox = try Inbox<Arrival>()
        self.inbox = inbox
        self.explain = explain
        watchers = Watchers(inbox: inbox)
        if !signals.isEmpty { SignalThread.start(signals) { inbox.add(.signal($0)) } }
    }

    /// Whether anything will be reported.
    var isBusy: Bool { !watchers.registrations.isEmpty || monitor != nil }

    /// Watches a name.
    func add(_ watch: Watch) throws(Failure) { try watchers.add(watch) }

    /// Reports posts of all names, or of these.
    func monitor(_ names: [String]) throws(DBusError) {
        if let monitor { return try monitor.observe(names) }
        let monitor = try Monitor(inbox: inbox)
        try monitor.observe(names)
        self.monitor = monitor
    }

    // MARK: Waiting

    /// Reports until the time is over; without one, until no registration is left.
    func run(for duration: Duration? = nil) {
        let deadline = duration.map { ContinuousClock.now + $0 }
        while isBusy {
            let now = ContinuousClock.now
            if let deadline, now >= deadline { return }
            if isPolling, now >= nextPolling { pollChecks(now) }
            guard isBusy else { break }
            let next = [deadline, isPolling ? nextPolling : nil].compactMap(\.self).min()
            wait(next.map { $0 - now })
        }
        if let deadline { Pause.sleep(deadline - ContinuousClock.now) }
    }

    private func wait(_ duration: Duration?) {
        let tokens = [watchers.port, watchers.file].compactMap(\.self)
        // Standard output is polled only for the end of its reader. With -q that does not matter.
        let output = style.verbosity == .quiet ? -1 : Output.standard.rawValue
        var descriptors = [pollfd(fd: output, events: 0, revents: 0)]
        descriptors += ([inbox.descriptor] + tokens).map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
        guard poll(&descriptors, nfds_t(descriptors.count), duration.map(Pause.milliseconds) ?? -1) > 0 else { return }
        if descriptors[0].revents != 0 { Output.endForBrokenPipe() }
        for descriptor in descriptors[2...] where descriptor.revents != 0 { readTokens(descriptor.fd) }
        if descriptors[1].revents != 0 { empty() }
    }

    private func empty() {
        let (arrivals, dropped) = inbox.takeAll()
        for arrival in arrivals { take(arrival) }
        monitor?.printKnown(style)
        if dropped > 0 {
            Output.error.write(
                "notifyutil: \(dropped) posts are not shown, because the output is not read fast enough\n"
            )
        }
    }

    private func take(_ arrival: Arrival) {
        switch arrival {
        case .token(let token, let time): report(token, time)
        case .signal(let signal): report(signal: signal)
        case .post(let post, let sender): monitor?.add(post, sender)
        case .distributed(let token, let notification, let time):
            guard let entry = watchers.take(.distributed(token)) else { return }
            let content = Event.Content.distributed(
                object: notification.object,
                userInfo: notification.userInfo,
                sender: notification.sender
            )
            print(style.line(Event(token: token, time: time, name: entry.name, content: content)))
        }
    }

    private func readTokens(_ descriptor: CInt) {
        // An earlier event of this round may have ended the last token, and closed the descriptor.
        guard descriptor == watchers.port || descriptor == watchers.file else { return }
        guard let tokens = readers[descriptor, default: TokenReader()].read(descriptor) else {
            Output.error.write("notifyutil: the descriptor of the notifications was closed\n")
            exit(ExitStatus.failed.rawValue)
        }
        let time = Timestamp.now
        for token in tokens { report(token, time) }
    }

    // MARK: Reporting

    private var isPolling: Bool { !watchers.registrations.entries(where: \.isPolled).isEmpty }

    private func pollChecks(_ now: ContinuousClock.Instant) {
        nextPolling = now + Self.pollingPeriod
        reportChecked { $0.isPolled }
    }

    private func report(signal: CInt) {
        print(style.line(signal: signal, time: .now))
        reportChecked { $0 == .signal(signal) }
    }

    private func reportChecked(where matches: (Kind) -> Bool) {
        let time = Timestamp.now
        for entry in watchers.registrations.entries(where: matches) {
            if case .darwin(let token) = entry.id, watchers.isPosted(token) { report(token, time) }
        }
    }

    private func report(_ token: CInt, _ time: Timestamp) {
        // Read before the last report ends the registration, and perhaps the name's state with it.
        let isKnown = watchers.registrations.entries.contains { $0.id == .darwin(token) }
        let state = isKnown && style.verbosity == .verbose ? watchers.state(token) : nil
        guard let entry = watchers.take(.darwin(token)), let kind = entry.kind else { return }
        if case .failed(let status) = state { explain(Failure("read the state of", entry.name, status: status)) }
        print(style.line(Event(token: token, time: time, name: entry.name, content: .darwin(kind, state: state))))
    }

    private func print(_ line: String?) {
        if let line { Output.standard.write(line + "\n") }
    }
}
