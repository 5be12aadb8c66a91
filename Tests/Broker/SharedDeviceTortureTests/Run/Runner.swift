import BrokerCore

struct Runner {
    private let device: TortureDevice
    private let schedule: Schedule
    private let monitor: Monitor
    private var truth: Truth
    private var tokens = TokenMonitor()
    /// The sessions that are known to have opened. A session on the disk may still fail: then it ends before it is
    /// announced, and no app owes a cleanup of it.
    private var opened: Set<UInt64> = []
    private var signOuts: [Task<Bool, Never>] = []
    /// The name of the count of inspections in which the adapter's program had files of a user.
    static let looksAtFiles = "looks at files of the adapter’s program"
    /// The present step, for the report of a failure.
    private(set) var place = "the beginning"
    private(set) var counts: [String: Int] = [:]

    /// The device is new, or is idle after another schedule.
    init(_ schedule: Schedule, on device: TortureDevice) throws {
        self.device = device
        self.schedule = schedule
        monitor = Monitor(isStrict: schedule.isStrict, base: device.restEpoch)
        truth = try device.truth.read(after: device.restEpoch)
    }

    /// - Throws: `Monitor.Violation`, or the error that prevents a program from running.
    mutating func run() async throws {
        for app in device.apps { app.clearJournal() }
        try device.use(strict: schedule.isStrict)
        for app in device.apps { try app.start() }
        try device.adapter.start()
        try await waitForBroker()
        for (index, step) in schedule.steps.enumerated() {
            place = "step \(index + 1), \(step)"
            try await carryOut(step)
            try look()
        }
        place = "the end"
        try await comeToRest()
    }

    // MARK: Steps

    private mutating func carryOut(_ step: Step) async throws {
        switch step {
        case .signIn(let app, let user, let patience): try tell(app, "sign-in \(user) \(patience)")
        case .signOut(let app, let user): try tell(app, "sign-out \(user) \(account(user))")
        case .signOutAnyone: signOuts.append(device.signOutAnyone())
        case .token(let app, let user): try tell(app, "token \(user) \(account(user))")
        case .ask(let app): try tell(app, "ask")
        case .work(let app): try tell(app, "work")
        case .kill(let app):
            count("app kills")
            device.apps[app].kill()
        case .killCleaning(let number):
            count("app kills amid a cleanup")
            let app = device.apps[number]
            try await wait("\(app.participant.name) cleans up") { runner in
                app.isIdle && (app.isDeleting || !runner.owes(app.participant))
            }
            app.kill()
        case .start(let app): try device.apps[app].start()
        case .stop(let app):
            count("app stops")
            device.apps[app].stop()
        case .resume(let app): device.apps[app].resume()
        case .killAdapter:
            count("adapter kills")
            device.adapter.kill()
        case .startAdapter: try device.adapter.start()
        case .killProgram:
            count("kills of the adapter's program")
            device.adapter.killProgram()
        case .killBroker:
            count("broker kills")
            device.killBroker()
        case .startBroker:
            try device.startBroker()
            try await waitForBroker()
        case .stopBroker:
            count("broker stops")
            device.stopBroker()
        case .resumeBroker: device.resumeBroker()
        case .restartBus:
            count("bus restarts")
            try device.restartBus()
        case .attack(let deed):
            guard Rights.hasUsers else { return }
            count("hostile clients")
            try device.attack(deed)
        case .endAttack: endAttack()
        case .fillDisk:
            guard Rights.canMount else { return }
            count("full disks")
            try device.fillDisk()
        case .freeDisk: freeDisk()
        case .becomeStrict:
            let known = device.configurations
            try device.becomeStrict()
            try await wait("the policy is strict") { $0.device.configurations > known }
        case .pause(let milliseconds):
            let end = ContinuousClock.now + .milliseconds(milliseconds)
            try await wait("the pause is over") { _ in .now >= end }
        case .untilAnswered: try await waitForAnswers()
        case .untilCleaned:
            try await wait("all is cleaned") { $0.truth.sessions.values.allSatisfy(\.debtors.isEmpty) }
        case .untilShown:
            try await wait("all apps show the user") { runner in
                guard let open = runner.truth.open, let user = open.session.user else { return true }
                let marker = Marker(user: user, epoch: open.epoch)
                return runner.device.apps.allSatisfy { $0.sight.screen == marker }
            }
        }
    }

    private func owes(_ app: Participant) -> Bool { truth.sessions.values.contains { $0.debtors.contains(app) } }

    private func account(_ user: String) -> String { device.accounts[user] ?? "" }

    private func tell(_ app: Int, _ command: String) throws { try device.apps[app].tell(command, before: truth) }

    private mutating func endAttack() {
        if device.endAttack() { count("hostile clients that were answered") }
    }

    private mutating func freeDisk() {
        if device.freeDisk(), device.brokerLog.contains(where: { $0.contains(" not on the disk yet ") }) {
            count("full disks that the broker met")
        }
    }

    private mutating func count(_ what: String) { counts[what, default: 0] += 1 }

    // MARK: The end

    /// Brings all programs back and signs out. Then all data must be gone and no cleanup owed.
    private mutating func comeToRest() async throws {
        freeDisk()
        endAttack()
        device.resumeBroker()
        try device.startBroker()
        for app in device.apps {
            app.resume()
            try app.start()
        }
        try device.adapter.start()
        try await waitForBroker()
        try await waitForAnswers()
        for task in signOuts { _ = await task.value }
        var sights: [Sight]
        var quiet: Truth
        repeat {
            try await waitForQuiet()
            quiet = truth
            sights = device.sights
            try look()
            // The sign-in of an app that has just died may still have succeeded.
        } while truth.epoch != quiet.epoch
        try monitor.checkQuiet(sights)
        for app in device.apps { try monitor.checkJournal(app.journal, of: app.participant) }
        device.restEpoch = quiet.epoch
    }

    /// Signs out any account, and waits until no cleanup is owed.
    private mutating func waitForQuiet() async throws {
        let deadline = ContinuousClock.now + Self.longest
        repeat {
            guard .now < deadline else { throw stuck("no app owes a cleanup") }
            while truth.open != nil, .now < deadline {
                _ = await device.signOutAnyone().value
                try look()
            }
            try await wait("no app owes a cleanup") { $0.truth.isQuiet || $0.truth.open != nil }
            // An app's record drops a session after the broker has its receipt.
            try await wait("no app's record names a session") { runner in
                runner.truth.open != nil || runner.device.recordedEpochs.isEmpty
            }
        } while !truth.isQuiet
    }

    private func stuck(_ what: String) -> Monitor.Violation {
        Monitor.Violation("waited for \(Self.longest) in vain until \(what); the ledger has \(truth.sessions)")
    }

    // MARK: Waiting

    /// A generous limit for operations that take milliseconds.
    private static let longest = Duration.seconds(40)

    private mutating func waitForBroker() async throws {
        try await wait("the broker is ready") { $0.device.isBrokerReady }
    }

    private mutating func waitForAnswers() async throws {
        try await wait("all apps have answered") { $0.device.apps.allSatisfy(\.isIdle) }
    }

    private mutating func wait(_ what: String, until condition: (Runner) -> Bool) async throws {
        let deadline = ContinuousClock.now + Self.longest
        while true {
            try look()
            if condition(self) { return }
            guard .now < deadline else { throw stuck(what) }
            try await Task.sleep(for: .milliseconds(4))
        }
    }

    // MARK: Inspection

    private mutating func look() throws {
        if let failure = device.brokerFailure {
            // The kernel releases the inotify instances of ended brokers and buses with a delay.
            guard failure.contains("fs.inotify") else {
                throw Monitor.Violation("the broker ended by itself: \(failure)")
            }
            count("broker starts without a free inotify instance")
            device.killBroker()
            try device.startBroker()
        }
        if let leak = device.leak { throw Monitor.Violation("a hostile client was told: \(leak)") }
        // The responses and inspections are older than the next snapshot and younger than the previous one.
        let answers = try device.apps.flatMap { try $0.answers() }
        if let failure = device.adapter.failure {
            guard failure.contains("fs.inotify") else {
                throw Monitor.Violation("the adapter ended by itself: \(failure)")
            }
            device.adapter.kill()
            try device.adapter.start()
        }
        let before = truth
        let sights = device.sights
        if sights.contains(where: { $0.app == device.adapter.participant && !$0.traces.isEmpty }) {
            count(Self.looksAtFiles)
        }
        let starts = device.adapter.starts
        truth = try device.truth.read(after: monitor.base)
        try monitor.check(before: before, sights, after: truth)
        // A sign-out may be noted while the rows still show the session as open. The runs of the program may then have
        // begun after the session's end.
        if let open = truth.open, let user = open.session.user, opens(open.epoch),
            device.truth.notedSignOut.map({ $0 < open.epoch }) ?? true
        {
            device.adapter.use(starts, by: Marker(user: user, epoch: open.epoch))
        }
        for (before, answer) in answers { try take(answer, before: before) }
    }

    /// Whether the broker has opened the session that is on its disk. A dead broker will find the session there at its
    /// next start.
    private mutating func opens(_ epoch: UInt64) -> Bool {
        if opened.contains(epoch) { return true }
        let isOpened = device.brokerLog.contains { line in
            line.contains(" signed in ") && line.split(separator: " ").contains("epoch=\(epoch)")
        }
        if isOpened || !device.isBrokerAlive { opened.insert(epoch) }
        return opened.contains(epoch)
    }

    private mutating func take(_ answer: [String], before: Truth) throws {
        let kind = answer.first ?? "empty"
        count(kind == "refused" ? "refusals: \(answer.last ?? "")" : "answers: \(kind)")
        guard answer.count == 3, kind == "token" || kind == "signed-in" else { return }
        try tokens.granted(answer[2], of: answer[1], before: before, after: truth)
    }
}
