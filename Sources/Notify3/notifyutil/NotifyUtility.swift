import Basics
import CommandSupport
import DBus
import Glibc
import NotifyCenter
import notify

/// The second pass: carries out the commands that the first pass (``Parser``) has read.
@main
struct NotifyUtility {
    private let invocation: Invocation
    private var status = ExitStatus.done
    /// `nil` until the first registration, so that a post alone does nothing else.
    private var reporter: Reporter?

    static func main() { exit(run().rawValue) }

    static func run() -> ExitStatus {
        Output.prepare()
        let arguments: [String]
        let invocation: Invocation
        do throws(Problem) {
            arguments = try CommandLine.texts()
            invocation = try Parser.parse(arguments)
        } catch {
            Output.error.write("\(error)\nsee notifyutil --help\n")
            return .usage
        }
        for warning in invocation.warnings { Output.error.write("\(warning)\n") }
        switch invocation.information {
        case .usage: Output.standard.write(Usage.text)
        case .version: Output.standard.write(ProjectVersion.line(of: "notifyutil") + "\n")
        case .usageAsError: Output.error.write(Usage.text)
        case nil where arguments.isEmpty: Output.error.write(Usage.text)
        case nil:
            var utility = NotifyUtility(invocation: invocation)
            return utility.carryOut()
        }
        return .done
    }

    private init(invocation: Invocation) { self.invocation = invocation }

    private mutating func carryOut() -> ExitStatus {
        ForkRehearsal.leaveOut()
        StatusCause.keep()
        prepare()
        // Checked here, because the status of notify(3) would not describe the mistake in the address.
        do throws(DBusError) {
            _ = try Bus.fromEnvironment.resolvedAddress()
        } catch  where error.code == .invalidArgument {
            Output.complain("\(error)")
            return .usage
        } catch {
            // Each command reports its own failure.
        }
        let last = invocation.commands.indices.last
        for (index, command) in invocation.commands.enumerated() {
            do throws(Failure) {
                try carryOut(command)
                // Nothing follows the last command, so it needs no pause.
                if case .post(_, let duration) = command, index != last { pause(duration) }
            } catch {
                report(error)
            }
        }
        guard let reporter, reporter.isBusy else { return status }
        if invocation.announcesReady { Output.error.write("ready\n") }
        reporter.run()
        return status
    }

    private func prepare() {
        // The library reads the bus from the environment, and so does the rest of the program.
        if let bus = invocation.bus { setenv(Bus.environmentVariable, bus.description, 1) }
        if invocation.options != 0 { notify_set_options(invocation.options) }
    }

    private mutating func carryOut(_ command: Command) throws(Failure) {
        switch command {
        case .post(let name, _):
            let status = notify_post(name)
            guard status == UInt32(NOTIFY_STATUS_OK) else { throw Failure("post", name, status: status) }
        case .watch(let watch): try startReporter().add(watch)
        case .getState(let name): Output.standard.write("\(name) \(try State.get(name))\n")
        case .setState(let name, let value): try State.set(name, value)
        case .dump(let path): try dump(path)
        }
    }

    private func pause(_ duration: Duration) {
        if let reporter { reporter.run(for: duration) } else { sleep(until: .now + duration) }
    }

    private func dump(_ path: String?) throws(Failure) {
        guard let path else { return Output.standard.write(try readStatus()) }
        let status = notify_dump_status(path)
        guard status == UInt32(NOTIFY_STATUS_OK) else {
            let reason = "the file cannot be written; check its folder, its rights and the free space"
            throw Failure("write the status to \(path)", status: status, reason: reason)
        }
    }

    private func readStatus() throws(Failure) -> String {
        do throws(DBusError) {
            let connection = try BusConnections.connection(to: .fromEnvironment)
            return try NotifydProtocol.status { message throws(DBusError) in
                try connection.callAndWait(message)
            }
        } catch {
            throw Failure(error)
        }
    }

    private mutating func startReporter() throws(Failure) -> Reporter {
        if let reporter { return reporter }
        var signals: Set<CInt> = []
        for case .watch(let watch) in invocation.commands {
            if case .signal(let signal) = watch.kind { signals.insert(signal) }
        }
        do throws(DBusError) {
            let reporter = try Reporter(invocation.verbosity, signals: signals)
            self.reporter = reporter
            return reporter
        } catch {
            throw Failure(error)
        }
    }

    /// Reports a failure, and lets the next command run, as Darwin's tool does. The first failure decides the exit
    /// status.
    private mutating func report(_ failure: Failure) {
        if let line = failure.line { Output.standard.write(line + "\n") }
        Output.complain(failure.explanation)
        if status == .done { status = ExitStatus(status: failure.status) }
    }
}

/// `-g` and `-s`, by a registration that ends right afterwards, as in Darwin's tool.
enum State {
    static func get(_ name: String) throws(Failure) -> UInt64 {
        var state: UInt64 = 0
        try withToken("read the state of", name) { notify_get_state($0, &state) }
        return state
    }

    static func set(_ name: String, _ state: UInt64) throws(Failure) {
        try withToken("set the state of", name) { notify_set_state($0, state) }
    }

    private static func withToken(_ attempted: String, _ name: String, _ body: (CInt) -> UInt32) throws(Failure) {
        var token = NOTIFY_TOKEN_INVALID
        var status = notify_register_plain(name, &token)
        if status == UInt32(NOTIFY_STATUS_OK) {
            status = body(token)
            notify_cancel(token)
        }
        guard status == UInt32(NOTIFY_STATUS_OK) else { throw Failure(attempted, name, status: status) }
    }
}
