import DBusTransport
import Glibc
import NotifyCenter
import notify

/// The second pass: carries out what the first has read.
struct NotifyUtility {
    private let invocation: Invocation
    private var status = ExitStatus.done
    /// There from the first registration on, so that a post alone does nothing but post.
    private var reporter: Reporter?

    /// Reads the command line, and carries it out.
    static func run(_ arguments: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>, count: Int) -> ExitStatus {
        Output.reserveStandardDescriptors()
        // To be known before libdbus changes it.
        _ = Output.ignoresBrokenPipes
        let invocation: Invocation
        do throws(UsageError) {
            invocation = try Parser.parse(try Arguments.read(arguments, count: count))
        } catch {
            Output.error.write("\(error.message)\n\(Usage.text)")
            return .usage
        }
        for warning in invocation.warnings { Output.error.write("\(warning)\n") }
        switch invocation.help {
        case .output: Output.standard.write(Usage.text)
        case .error: Output.error.write(Usage.text)
        case nil where count <= 1: Output.error.write(Usage.text)
        case nil:
            var utility = NotifyUtility(invocation: invocation)
            return utility.carryOut()
        }
        return .done
    }

    private init(invocation: Invocation) { self.invocation = invocation }

    private mutating func carryOut() -> ExitStatus {
        ForkRehearsal.leaveOut()
        prepare()
        // The library would only say that it failed.
        do throws(DBusError) {
            _ = try Bus.fromEnvironment.resolvedAddress()
        } catch  where error.code == .invalidArgument {
            Output.error.write("notifyutil: \(error)\n")
            return .usage
        } catch {
            // Each command says what it could not do.
        }
        let last = invocation.commands.indices.last
        for (index, command) in invocation.commands.enumerated() {
            do throws(Failure) {
                try carryOut(command)
                // After the last there is nothing to wait for.
                if case .post(let post) = command, index != last { pause(post.pause) }
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
        // The library asks the environment, and so does all the rest.
        if let bus = invocation.bus { setenv(Bus.environmentVariable, bus.variable, 1) }
        if invocation.options != 0 { notify_set_options(invocation.options) }
        if !signals.isEmpty { SignalThread.block(signals) }
    }

    private var signals: Set<CInt> {
        var signals: Set<CInt> = []
        for case .watch(let watch) in invocation.commands {
            if case .darwin(.signal(let signal)) = watch.source { signals.insert(signal) }
        }
        return signals
    }

    private mutating func carryOut(_ command: Command) throws(Failure) {
        switch command {
        case .post(let post): try self.post(post)
        case .watch(let watch): try startReporter().add(watch)
        case .getState(let name):
            let state = try State.get(name)
            Output.standard.write(invocation.style.line(state: state, of: name) + "\n")
        case .setState(let name, let value): try State.set(name, value)
        case .list(let prefix): try attempt("list the registrations") { () throws(DBusError) in try list(prefix) }
        case .monitor(let names):
            let reporter = try startReporter()
            try attempt("monitor") { () throws(DBusError) in try reporter.monitor(names) }
        case .dump(let path): try dump(path)
        }
    }

    // MARK: Commands

    private func post(_ post: Post) throws(Failure) {
        switch post.content {
        case .darwin:
            let status = notify_post(post.name)
            guard status == UInt32(NOTIFY_STATUS_OK) else { throw Failure("post", post.name, status: status) }
        case .distributed(let object, let userInfo):
            do throws(DBusError) {
                try DistributedNotifyCenter.default.post(
                    NotificationName(post.name),
                    object: object,
                    userInfo: userInfo
                )
            } catch {
                throw Failure("post", post.name, cause: error)
            }
        }
    }

    private func pause(_ duration: Duration) {
        if let reporter { reporter.run(for: duration) } else { Pause.sleep(duration) }
    }

    private func list(_ prefix: String) throws(DBusError) {
        let (names, processes) = try Notifyd.list()
        let listing = Listing(names: names, processes: processes, prefix: prefix, program: Notifyd.program)
        if invocation.style.isJSON {
            let lines = listing.json(userName: Listing.userName)
            if !lines.isEmpty { Output.standard.write(lines.joined(separator: "\n") + "\n") }
        } else {
            let table = listing.table(userName: Listing.userName)
            Output.standard.write(table.text(isColourful: Output.isColourful))
        }
    }

    private func dump(_ path: String?) throws(Failure) {
        if let path {
            let status = notify_dump_status(path)
            guard status == UInt32(NOTIFY_STATUS_OK) else {
                throw Failure("write the status to \(path)", status: status)
            }
        } else {
            try attempt("read the status") { () throws(DBusError) in Output.standard.write(try Notifyd.status()) }
        }
    }

    // MARK: Failures

    private func attempt(_ attempted: String, _ body: () throws(DBusError) -> Void) throws(Failure) {
        do throws(DBusError) {
            try body()
        } catch {
            throw Failure(attempted, cause: error)
        }
    }

    private mutating func startReporter() throws(Failure) -> Reporter {
        if let reporter { return reporter }
        do throws(DBusError) {
            var explained = false
            let reporter = try Reporter(style: invocation.style, signals: signals) { failure in
                guard !explained else { return }
                explained = true
                Output.error.write("notifyutil: \(Explanation.of(failure))\n")
            }
            self.reporter = reporter
            return reporter
        } catch {
            throw Failure("watch", cause: error)
        }
    }

    /// Goes on with the next command, as Darwin's tool does; the first failure decides the exit status.
    private mutating func report(_ failure: Failure) {
        if let line = invocation.style.line(failure) { Output.standard.write(line + "\n") }
        Output.error.write("notifyutil: \(Explanation.of(failure))\n")
        if status == .done { status = ExitStatus(status: failure.status) }
    }
}

extension Bus {
    /// As the environment names it.
    fileprivate var variable: String {
        switch self {
        case .session: "session"
        case .system: "system"
        case .address(let address): address
        }
    }
}

/// `-g` and `-s`, by a registration that lasts no longer, as Darwin's tool has it.
enum State {
    /// The 64 bits of a name.
    static func get(_ name: String) throws(Failure) -> UInt64 {
        var state: UInt64 = 0
        try withToken("read the state of", name) { notify_get_state($0, &state) }
        return state
    }

    /// Sets the 64 bits of a name.
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
