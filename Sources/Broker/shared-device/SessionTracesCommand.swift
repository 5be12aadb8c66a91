import AppAdapters
import ArgumentParser
import Basics
import CommandParts
import DBus
import DeviceConfiguration
import FoundationEssentials
import Glibc
import SharedDevice
import Synchronization

struct SessionTracesCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "session-traces",
        abstract: "Removes what a person leaves in the desktop session, after each sign-out.",
        discussion: """
            Takes part in shared device mode as an app of the session that it runs in, as the unit shared-device-session-traces.service of the \
            user does. After each sign-out it carries out its steps: \(SessionTrace.names). A step that fails is a failed cleanup: there is no \
            receipt, and it is tried again. Files are deleted without following links or crossing mounts.
            With --now it does all of it once, without a broker; with --dry-run it says what would go.
            Exit status: 0 done, or ended as asked; 64 wrong usage; 74 a step failed.
            """
    )

    @Option(help: ArgumentHelp("The app's identifier.", valueName: "id"))
    var app = "org.notifycenter.session-traces"

    @Option(
        help: ArgumentHelp(
            "Steps that are left out, with commas between them: \(SessionTrace.names).",
            valueName: "steps"
        )
    )
    var without: String = ""

    @Flag(help: "List what would be removed, and change nothing.")
    var dryRun = false

    @Flag(help: "Remove it now, once, without a broker.")
    var now = false

    @OptionGroup var bus: BusOptions

    func validate() throws {
        guard AppIdentifier.isReverseDNS(app) else {
            throw ValidationError("--app needs an identifier such as org.example.session-traces")
        }
        guard !(dryRun && now) else { throw ValidationError("choose one of --dry-run and --now") }
        guard try !traces().isEmpty else { throw ValidationError("--without leaves no step") }
    }

    func run() throws {
        // Before any thread starts.
        signal(SIGPIPE, SIG_IGN)
        try OtherThreads.run { [self] in try await dryRun || now ? once() : follow() }
    }

    private func traces() throws -> [SessionTrace] {
        let names = without.split { ", ".contains($0) }.map(String.init)
        let left = try names.map { name in
            guard let trace = SessionTrace(rawValue: name) else {
                throw ValidationError("there is no step “\(name)”; the steps are \(SessionTrace.names)")
            }
            return trace
        }
        return SessionTrace.allCases.filter { !left.contains($0) }
    }

    private var application: SharedDeviceApplication { SharedDeviceApplication(identifier: app, bus: bus.bus) }

    private func session(_ application: SharedDeviceApplication) throws(CommandFailure) -> SessionTraces {
        SessionTraces(user: try SystemUser.ofThisProcess(), keeping: application.stateDirectory)
    }

    private func once() async throws {
        let session = try session(application)
        var table = Table("STEP", "RESULT")
        var hasFailed = false
        for trace in try traces() {
            do throws(AdapterFailure) {
                let finding = try await dryRun ? session.look(for: trace) : session.remove(trace)
                table.add([trace.rawValue, finding.text(dryRun ? "would go" : "removed")])
            } catch {
                hasFailed = true
                table.add([trace.rawValue, "FAILED: \(error)"], .red)
            }
        }
        for line in table.lines { try emit(line) }
        if hasFailed { throw ExitCode(EX_IOERR) }
    }

    private func follow() async throws {
        let end = try EndSignals()
        let application = application
        let session = try session(application)
        let cleanup = CleanupCoordinator()
        for trace in try traces() {
            let name = trace.rawValue
            try cleanup.register(name) { _ in
                do throws(AdapterFailure) {
                    let text = try await session.remove(trace).text("removed")
                    Self.say("\(name): \(text)")
                    return text
                } catch {
                    Self.say("\(name): FAILED: \(error)")
                    throw error
                }
            }
            // Report at the sign-in which steps would fail at the sign-out.
            do throws(AdapterFailure) {
                if case .absent(let reason) = try await session.look(for: trace) {
                    Self.say("\(name): not there: \(reason)")
                }
            } catch {
                Self.say("\(name): \(error)")
            }
        }
        let following = Task {
            await application.follow(cleanup) { state in
                switch state {
                case .hidden(.changing), .hidden(.starting), .hidden(.stopped): break
                case .hidden(let reason): Self.say("\(reason)")
                case .nobody: Self.say("no account is signed in")
                case .open: Self.say("an account is signed in")
                }
            }
        }
        await end.first()
        following.cancel()
        await following.value
    }

    private static func say(_ line: String) { warn("session-traces: \(line)") }
}

extension SessionTrace {
    fileprivate static var names: String { allCases.map(\.rawValue).joined(separator: ", ") }
}

extension TraceFinding {
    fileprivate func text(_ verb: String) -> String {
        switch self {
        case .traces(let text): "\(text) \(verb)"
        case .nothing: "nothing is there"
        case .absent(let reason): "not there: \(reason)"
        }
    }
}
