import ArgumentParser
import Basics
import BrokerCore
import CommandParts
import DBus
import DeviceConfiguration
import DeviceStorage
import FoundationEssentials
@_spi(Extensions) import SharedDevice
import SharedDeviceBroker
import SharedDeviceTestKit

struct StatusCommand: ReportingCommand {
    static let configuration = CommandConfiguration(
        commandName: "status",
        abstract: "Shows who is signed in, and the progress of the cleanup after the last session.",
        discussion: """
            Reads the database, also while no broker runs. Only a running broker can tell the organisation, \
            whether a sign-in is held, and which apps run.
            """
    )

    @Flag(help: "As a JSON object, for programs.")
    var json = false

    @OptionGroup var names: NameOptions
    @OptionGroup var state: StateOptions
    @OptionGroup var bus: BusOptions

    func execute() throws {
        let database = try state.openDatabase(.existing)
        let status = try DeviceStatus(database: database, broker: BrokerView(bus))
        let known = AppNames(try DeviceStore.read(database).ledger)
        try emit(json ? Form.json(status) : status.text { names.name($0, known) })
    }
}

/// The device's state. The properties' names are the JSON's keys, which programs rely on.
struct DeviceStatus: Encodable {
    struct Broker: Encodable {
        let responds: Bool
        let version: String?
        /// Why there is no response, or else the first problem of the device.
        let problem: String?
    }

    /// The mode; if the broker does not respond, the mode in the database.
    let mode: String
    /// Whether the device has joined its organisation; `nil` if no broker responds.
    let joined: Bool?
    let epoch: UInt64
    let organization: String?
    let account: String?
    let signedInAt: Date?
    /// When the session ends by itself; `nil` if it does not, or if no broker responds.
    let sessionEnd: SessionEnd?
    /// Whether the screen is locked; `nil` if no broker responds.
    let isLocked: Bool?
    let broker: Broker
    /// The apps whose cleanup the next sign-in waits for; `nil` if no broker responds.
    let signInHeldFor: [String]?
    /// The apps that owe a cleanup and that the bus cannot start, with the reasons; `nil` if no broker responds.
    let startProblems: [String]?
    /// Why overdue cleanups cannot be enforced; `nil` if no broker responds.
    let enforcementProblems: [String]?
    /// The refused manifests of apps, with the reasons; `nil` if no broker responds.
    let manifestProblems: [String]?
    /// The certificates whose end would stop a function of the device; `nil` if no broker responds.
    let certificates: [ObservedCertificate]?
    /// The open round, or else the last one.
    let round: Round?

    init(database: DeviceDatabase, broker: BrokerView) throws {
        let content = try DeviceStore.read(database)
        let (state, ledger) = (content.device, content.ledger)
        mode = state.mode.rawValue
        epoch = state.epoch
        account = state.account?.username
        signedInAt = state.account.flatMap { _ in ledger.sessions[state.epoch]?.startedAt }
        sessionEnd = broker.information.flatMap { SessionEnd($0) }
        isLocked = broker.information.map { $0["locked"]?.booleanValue ?? false }
        joined = broker.information?["joined"]?.booleanValue
        organization = broker.information?["organization"]?.stringValue
        let problems = ["configuration", "store", "key", "enforcement", "login"].compactMap { kind in
            broker.information?["\(kind)Problem"]?.stringValue
        }
        self.broker = Broker(
            responds: broker.information != nil,
            version: broker.information?["brokerVersion"]?.stringValue,
            problem: broker.problem ?? problems.first
        )
        signInHeldFor = broker.information.map { $0["signInHeldFor"]?.stringsValue ?? [] }
        startProblems = broker.apps?["startProblems"]?.stringsValue
        enforcementProblems = broker.apps?["enforcementProblems"]?.stringsValue
        manifestProblems = broker.apps?["manifestProblems"]?.stringsValue
        let now = Date().timeIntervalSince1970
        certificates = broker.apps.map { DeviceCertificate.all(in: $0).map { ObservedCertificate($0, now: now) } }
        let epoch = ledger.openRounds.last?.number ?? ledger.rounds.last
        round = epoch.flatMap { ledger.report(of: $0) }.map { Round($0) { broker.running?.contains($0.identifier) } }
    }

    /// - Parameter name: Returns the displayed name of an app.
    func text(_ name: (String) -> String) -> String {
        var facts = [("mode", broker.responds ? mode : "unknown (last known: \(mode))")]
        if let organization { facts.append(("organization", organization)) }
        if let joined { facts.append(("joined", joined ? "yes" : "no")) }
        let since = signedInAt.map { ", since \(Form.time($0))" } ?? ""
        let locked = isLocked == true ? ", locked" : ""
        facts.append(("signed in", account.map { $0 + since + locked } ?? "no account"))
        if let sessionEnd {
            let verb = sessionEnd.locks ? "locks" : "ends"
            facts.append((verb + (sessionEnd.isSoon ? " soon" : ""), Words.end(sessionEnd, clock: Form.time)))
        }
        facts.append(("epoch", "\(epoch)"))
        let version = broker.version.map { " (\($0))" } ?? ""
        facts.append(("broker", broker.responds ? "responds\(version)" : "does not respond"))
        if let problem = broker.problem { facts.append(("problem", problem)) }
        if let apps = signInHeldFor?.map(name) {
            facts.append(("sign-in", apps.isEmpty ? "open" : "held for \(apps.joined(separator: ", "))"))
        }
        for problem in manifestProblems ?? [] { facts.append(("manifest", problem)) }
        for certificate in certificates ?? [] { facts.append(("certificate", certificate.text)) }
        for (fact, problems) in [("not started", startProblems), ("not enforced", enforcementProblems)] {
            for problem in problems ?? [] {
                // An identifier and a sentence about it. The identifiers of manifests contain no blank.
                let words = problem.split(separator: " ", maxSplits: 1).map(String.init)
                facts.append((fact, ([name(words.first ?? "")] + words.dropFirst()).joined(separator: " ")))
            }
        }
        let width = facts.map(\.0.count).max() ?? 0
        var lines = facts.map { name, value in
            Terminal.bold(name) + String(repeating: " ", count: width - name.count + 2) + value.printable
        }
        if let round { lines += ["", round.headline] + round.table(name).lines }
        return lines.joined(separator: "\n")
    }
}

/// A round of cleanups. The properties' names are the JSON's keys. Times are in seconds since the session ended.
struct Round: Encodable {
    struct App: Encodable {
        let identifier: String
        let user: UInt32?
        let progress: CleanupReport.Progress
        let toldAfter: Double?
        let begunAfter: Double?
        let finishedAfter: Double?
        let detail: String?
        /// `nil` if no broker responds.
        let running: Bool?
    }

    let session: UInt64
    let endedAt: Date
    let outcome: CleanupReport.Outcome
    let apps: [App]

    /// - Parameter isRunning: Returns whether the app has a process on the bus; `nil` if no broker responds.
    init(_ report: CleanupReport, isRunning: (CleanupReport.App) -> Bool?) {
        (session, endedAt, outcome) = (report.session, report.endedAt, report.outcome)
        apps = report.apps.map { app in
            App(
                identifier: app.identifier,
                user: app.user,
                progress: app.progress,
                toldAfter: app.toldAfter,
                begunAfter: app.begunAfter,
                finishedAfter: app.finishedAfter,
                detail: app.detail,
                running: isRunning(app)
            )
        }
    }

    var headline: String {
        let outcome = Terminal.coloured(self.outcome.rawValue, self.outcome == .complete ? .green : .yellow)
        return "cleanup after session \(session), which ended \(Form.time(endedAt)): \(outcome)"
    }

    /// - Parameter name: Returns the displayed name of an app.
    func table(_ name: (String) -> String) -> Table {
        var table = Table("APP", "PROGRESS", "TOLD", "BEGUN", "FINISHED", "RUNNING", "DETAIL")
        for app in apps {
            let colour: Terminal.Colour = app.progress.isSettled ? .green : app.progress == .failed ? .red : .yellow
            let times = [app.toldAfter, app.begunAfter, app.finishedAfter].map(Form.after)
            let running = app.running.map { $0 ? "yes" : "no" } ?? "unknown"
            table.add([name(app.identifier), app.progress.rawValue] + times + [running, app.detail ?? "-"], colour)
        }
        return table
    }
}
