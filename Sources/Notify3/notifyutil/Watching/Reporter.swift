import Basics
import CommandSupport
import Glibc
import NotifyCenter

/// Prints the events of the registrations, on the main thread.
final class Reporter {
    /// How often registrations of the kinds `check` and `plain` are checked, as on Darwin.
    private static let pollingPeriod = Duration.milliseconds(100)

    private let verbosity: Verbosity
    private let watchers = Watchers()
    private let signals: SignalDescriptor?
    private var readers: [CInt: TokenReader] = [:]
    private var nextPolling = ContinuousClock.now
    private var hasExplained = false

    /// - Parameters:
    ///   - verbosity: How much is printed of events.
    ///   - signals: The signals of later registrations. From now on the process gets them only through this object.
    /// - Throws: ``DBusError/Code/noResources`` if there are no descriptors left.
    init(_ verbosity: Verbosity, signals: Set<CInt>) throws(DBusError) {
        self.verbosity = verbosity
        self.signals = signals.isEmpty ? nil : try SignalDescriptor(signals)
    }

    var isBusy: Bool { !watchers.registrations.isEmpty }

    func add(_ watch: Watch) throws(Failure) { try watchers.add(watch) }

    // MARK: Waiting

    /// Reports until the duration is over; without a duration, until no registration is left.
    func run(for duration: Duration? = nil) {
        let deadline = duration.map { ContinuousClock.now + $0 }
        while isBusy {
            let now = ContinuousClock.now
            if let deadline, now >= deadline { return }
            if isPolling, now >= nextPolling {
                nextPolling = now + Self.pollingPeriod
                reportChecked(where: \.isPolled)
            }
            guard isBusy else { break }
            let next = [deadline, isPolling ? nextPolling : nil].compactMap(\.self).min()
            wait(until: next)
        }
        if let deadline { sleep(until: deadline) }
    }

    private func wait(until deadline: ContinuousClock.Instant?) {
        // Standard output is polled only for the end of its reader, which does not matter with -q.
        let output = verbosity == .quiet ? -1 : Output.standard.rawValue
        var descriptors = [pollfd(fd: output, events: 0, revents: 0)]
        descriptors += ([signals?.descriptor ?? -1] + watchers.descriptors).map {
            pollfd(fd: $0, events: Int16(POLLIN), revents: 0)
        }
        guard poll(&descriptors, nfds_t(descriptors.count), deadline.map(milliseconds(until:)) ?? -1) > 0 else {
            return
        }
        if descriptors[0].revents != 0 { Output.endForBrokenPipe() }
        for descriptor in descriptors[2...] where descriptor.revents != 0 { readTokens(descriptor.fd) }
        if descriptors[1].revents != 0 { readSignals() }
    }

    private func readTokens(_ descriptor: CInt) {
        // An earlier event of this round may have ended the last token, and closed the descriptor.
        guard watchers.descriptors.contains(descriptor) else { return }
        guard let tokens = readers[descriptor, default: TokenReader()].read(descriptor) else {
            Output.complain("the descriptor of the notifications was closed")
            exit(ExitStatus.failed.rawValue)
        }
        let time = Timestamp.now
        for token in tokens { report(token, time) }
    }

    private func readSignals() {
        for signal in signals?.read() ?? [] {
            print(verbosity.line(signal: signal))
            reportChecked { $0 == .signal(signal) }
        }
    }

    // MARK: Reporting

    private var isPolling: Bool { !watchers.registrations.entries(where: \.isPolled).isEmpty }

    private func reportChecked(where matches: (Kind) -> Bool) {
        let time = Timestamp.now
        for entry in watchers.registrations.entries(where: matches) where watchers.isPosted(entry.token) {
            report(entry.token, time)
        }
    }

    private func report(_ token: CInt, _ time: Timestamp) {
        // Reads the state before the last report ends the registration, and perhaps the name's state with it.
        let isKnown = watchers.registrations.entries.contains { $0.token == token }
        let state = isKnown && verbosity == .verbose ? watchers.state(token) : nil
        guard let entry = watchers.take(token) else { return }
        if case .failed(let status) = state { explain(Failure("read the state of", entry.name, status: status)) }
        print(verbosity.line(Event(token: token, time: time, name: entry.name, kind: entry.kind, state: state)))
    }

    /// Explains once why states cannot be read.
    private func explain(_ failure: Failure) {
        if !hasExplained { Output.complain(failure.explanation) }
        hasExplained = true
    }

    private func print(_ line: String?) {
        if let line { Output.standard.write(line + "\n") }
    }
}

/// How much of an event is printed.
enum Verbosity: Equatable {
    /// `-q`: nothing.
    case quiet
    /// Darwin's short lines.
    case normal
    /// `-v`: with token, time, state and kind.
    case verbose
}

struct Event {
    let token: CInt
    let time: Timestamp
    let name: String
    let kind: Kind
    /// The name's state, if it was read.
    let state: StateReading?
}

/// The result of `notify_get_state`.
enum StateReading: Equatable {
    case value(UInt64)
    case failed(UInt32)
}

extension Verbosity {
    func line(_ event: Event) -> String? {
        switch self {
        case .quiet: return nil
        case .normal: return event.name
        case .verbose:
            let line = "[\(event.token)] \(event.time.text) \(event.name)"
            return switch event.state {
            case .failed(let status): "\(line) : Failed with code \(status)"
            case .value(let state): "\(line) \(state) \(event.kind.word)"
            case nil: "\(line) \(event.kind.word)"
            }
        }
    }

    func line(signal: CInt) -> String? { self == .quiet ? nil : "SIGNAL \(signal)" }
}

extension Failure {
    /// Darwin's line for a failure that concerns a name; `nil` for other failures.
    var line: String? { name.map { "\($0): Failed with code \(status)" } }
}
