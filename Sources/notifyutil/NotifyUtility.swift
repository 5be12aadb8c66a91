import DBusTransport
import Dispatch
import Glibc
import NotifyCenter

/// Carries out an invocation. Observers report on the main queue, one line after the other.
struct NotifyUtility {
    private enum Exit {
        /// The command line is wrong (sysexits.h: EX_USAGE).
        static let usage: CInt = 64
        /// The bus cannot be reached, or refused (EX_UNAVAILABLE).
        static let unavailable: CInt = 69
    }

    private let arguments: [String]

    init(_ arguments: some Sequence<String>) { self.arguments = Array(arguments) }

    func run() -> CInt {
        let invocation: Invocation
        do throws(Invocation.Refusal) {
            invocation = try Invocation(arguments)
        } catch {
            Output.error.write("notifyutil: \(error.message)\n\(Self.usage)")
            return Exit.usage
        }
        if invocation.showsHelp {
            Output.standard.write(Self.usage)
            return 0
        }
        guard !invocation.commands.isEmpty else {
            Output.error.write(Self.usage)
            return Exit.usage
        }
        do throws(DBusError) {
            try carryOut(invocation)
            return 0
        } catch {
            Output.error.write("notifyutil: \(error)\n")
            return Exit.unavailable
        }
    }

    private func carryOut(_ invocation: Invocation) throws(DBusError) {
        // A connection of its own: sharing one is of no use to a process with one center.
        let center = DarwinNotifyCenter(connection: try DBusConnection.open(invocation.bus))
        let watchers = Watchers(format: invocation.format)
        for (index, command) in invocation.commands.enumerated() {
            switch command {
            case .post(let name):
                try center.post(NotificationName(name))
                // Posts in a row are told apart by their watchers, as on Darwin; after the last there is nothing to wait for.
                if index + 1 < invocation.commands.count { sleep(invocation.pause) }
            case .watch(let name, let count):
                try watchers.add(name, count: count, on: center)
            }
        }
        guard !watchers.isEmpty else { return }
        if invocation.announces { Output.error.write("ready\n") }
        // Ends in Watchers, when the last has counted to its end.
        dispatchMain()
    }

    private func sleep(_ duration: Duration) {
        let (seconds, attoseconds) = duration.components
        var request = timespec(tv_sec: Int(seconds), tv_nsec: Int(attoseconds / 1_000_000_000))
        var remaining = timespec()
        while nanosleep(&request, &remaining) != 0, errno == EINTR { request = remaining }
    }

    private static let usage = """
        usage: notifyutil [-q | -v | --json] [--ready] [-z MSEC] [--session | --system | --address ADDRESS] COMMAND ...

        Posts and watches Darwin-style notifications on a D-Bus bus. Commands run from left to right:
          -p NAME     post NAME
          -w NAME     report every post of NAME, until interrupted
          -1 NAME     report one post of NAME (-N: that many, at least one), then end
        Options:
          -q          report nothing
          -v          report “[TOKEN] SECONDS.MILLISECONDS NAME SENDER”
          --json      report one JSON object a line: token, time, name, sender
          --ready     write “ready” to standard error when the watching has begun
          -z MSEC     pause after a post that others follow (default 100)
          --session   the session bus (default; the environment variable NOTIFY_CENTER_BUS changes it)
          --system    the system bus
          --address   the bus at a D-Bus address, for instance unix:path=/run/my/bus
          -h, --help  this text
        Exit status: 0 done; 64 the command line is wrong; 69 the bus cannot be reached or refuses;
        74 the output cannot be written.

        """
}
