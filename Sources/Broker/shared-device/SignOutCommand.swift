import ArgumentParser
import Basics
import BrokerCore
import CommandParts
import DBus
import DeviceConfiguration
import DeviceStorage
import Glibc
@_spi(Extensions) import SharedDevice
import SharedDeviceBroker

struct SignOutCommand: ReportingCommand {
    static let configuration = CommandConfiguration(
        commandName: "sign-out",
        abstract: "Signs the user out, for the whole device.",
        discussion: """
            With --wait, shows how the apps clean up, and ends when all have, with 0; or when the time is over, with 75. The \
            account is signed out in both cases. Waiting reads the database.
            """
    )

    @Option(help: ArgumentHelp("Waits this many seconds for the apps to clean up.", valueName: "seconds"))
    var wait: Double?

    @Option(help: ArgumentHelp("The reason, for the log. Do not name a person.", valueName: "text"))
    var reason: String?

    @Flag(help: "Prints a JSON object at the end, for programs.")
    var json = false

    @OptionGroup var names: NameOptions
    @OptionGroup var state: StateOptions
    @OptionGroup var bus: BusOptions

    func validate() throws {
        // More than a day is a mistake, and much more would overflow a Duration.
        if let wait, !(0...86400).contains(wait) { throw ValidationError("--wait needs a number from 0 to 86400") }
    }

    private struct Outcome: Encodable {
        let session: UInt64
        let epoch: UInt64?
        let round: Round?
    }

    private func signOut(_ attempted: String) throws -> BrokerProtocol.Fields {
        do throws(SharedDeviceError) {
            let request: BrokerProtocol.Fields = reason.map { ["reason": .string($0)] } ?? [:]
            return try bus.connect().callAndWait(.signOutAnyone, request, attempted: attempted)
        } catch {
            guard error.code == .noCurrentAccount else { throw error }
            throw CommandFailure(EX_NOINPUT, "no account is signed in")
        }
    }

    func execute() throws {
        // Opened first, so that a sign-out whose round cannot be followed does not start.
        let database = try wait.map { _ in try state.openDatabase(.existing) }
        let attempted = "sign out"
        let answer = try signOut(attempted)
        guard let session = answer["session"]?.unsignedValue else {
            throw SharedDeviceError(.brokerFailed, attempted: attempted, message: "its response lacks “session”")
        }
        if !json { try emit("signed out: session \(session) is over") }
        let known = AppNames(try database.map { try DeviceStore.read($0).ledger } ?? CleanupLedger())
        let name: (String) -> String = { names.name($0, known) }
        var report: CleanupReport?
        if let database, let wait {
            report = try Self.follow(session, in: database, within: .seconds(wait)) { app in
                if !json { try emit(Self.line(app, name(app.identifier))) }
            }
        }
        let running = report != nil ? BrokerView(bus).running : nil
        let round = report.map { Round($0) { running?.contains($0.identifier) } }
        if json {
            try emit(Form.json(Outcome(session: session, epoch: answer["epoch"]?.unsignedValue, round: round)))
        } else if let round {
            try emit(([round.headline] + (round.apps.isEmpty ? [] : round.table(name).lines)).joined(separator: "\n"))
        }
        guard wait != nil, report?.isComplete != true else { return }
        let owing = report?.owing.map { name($0.identifier).printable }.joined(separator: ", ")
        throw CommandFailure(
            EX_TEMPFAIL,
            owing.map { "not all data is gone yet; still owing: \($0)" }
                ?? "\(state.path) knows nothing of session \(session); see that it is this broker's state directory"
        )
    }

    /// The round when it is complete, or after `duration`; `nil` if the database has no round of that session.
    private static func follow(
        _ session: UInt64,
        in database: DeviceDatabase,
        within duration: Duration,
        progress: (CleanupReport.App) throws -> Void
    ) throws -> CleanupReport? {
        let deadline = ContinuousClock.now + duration
        var known: [Participant: CleanupReport.App] = [:]
        while true {
            let report = try DeviceStore.read(database).ledger.report(of: session)
            for app in report?.apps ?? [] {
                let participant = Participant(app: app.identifier, user: app.user ?? 0)
                guard known.updateValue(app, forKey: participant) != app else { continue }
                try progress(app)
            }
            if report?.isComplete == true || .now >= deadline { return report }
            usleep(50_000)
        }
    }

    private static func line(_ app: CleanupReport.App, _ name: String) -> String {
        let time: Double? =
            switch app.progress {
            case .owed: nil
            case .told: app.toldAfter
            case .begun: app.begunAfter
            case .failed, .finished, .waived, .enforced: app.finishedAfter
            }
        let detail = app.detail.map { "  (\($0))" } ?? ""
        return "  \(Form.after(time))  \(name)  \(app.progress.rawValue)\(detail)".printable
    }
}
