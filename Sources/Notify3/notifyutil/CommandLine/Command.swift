import NotifyCenter

enum Command: Equatable {
    /// A post, and the pause after it. The pause lets watchers tell posts in a row apart, as on Darwin.
    case post(String, pause: Duration)
    case watch(Watch)
    case getState(String)
    case setState(String, UInt64)
    /// notifyd's status, to a file or to standard output.
    case dump(path: String?)
}

/// A registration, and how often it reports.
struct Watch: Equatable {
    var name: String
    /// `nil` for no limit.
    var count: Int?
    var kind: Kind
}

/// How a registration learns of posts, by the function of notify(3) that makes it.
enum Kind: Equatable {
    case port
    case file
    case check
    case plain
    case dispatch
    case signal(CInt)

    /// The word of notifyd's lists.
    var word: String {
        switch self {
        case .port: "port"
        case .file: "file"
        case .check: "check"
        case .plain: "plain"
        case .dispatch: "dispatch"
        case .signal: "signal"
        }
    }
}

enum Usage {
    static let text = """
        usage: notifyutil [OPTION | COMMAND] ...

        Posts and watches names of notify(3). Commands run from left to right; an option holds for the commands after it.

        Commands:
          -p NAME           post NAME; the next command follows after a pause (-z)
          -w NAME           report every post of NAME, until interrupted
          -1 NAME           report one post of NAME (-N: that many), then end
          -g NAME           print the state of NAME
          -s NAME VALUE     set the state of NAME
          --dump [PATH]     print notifyd's status, or write it to a file

        How -w and -N watch:
          -port, -file, -dispatch, -check, -plain, -signal [N]
                            by this function of notify(3); without an option, -port

        Options:
          -q                report nothing
          -v                report [TOKEN] SECONDS.MILLISECONDS NAME STATE KIND
          --ready           write "ready" to standard error when all watches are in force
          -z MSEC           pause between a post and the next command (100)
          -M, -R            accepted as on Darwin; what they turn on is always on here
          --session         the session bus (the default; the environment variable NOTIFY_CENTER_BUS names another)
          --system          the system bus
          --address TEXT    the bus at a D-Bus address, for instance unix:path=/run/my/bus
          -h, --help        this text
          --version         the version

        JSON, the distributed center, and who posts or is registered: see notify-center(1).
        Exit status: 0 done; 1 wrong command line; 69 the bus or notifyd cannot be reached; 77 not authorized;
        74 the output cannot be written; 70 anything else. See notifyutil(1).

        """
}

struct Invocation: Equatable {
    /// From left to right.
    var commands: [Command] = []
    var verbosity = Verbosity.normal
    /// `nil` for the bus that the environment names.
    var bus: Bus?
    /// The argument of `notify_set_options`; 0 for no call.
    var options: UInt32 = 0
    /// Whether to report when all watches are in force.
    var announcesReady = false
    /// The program goes on after these warnings, as on Darwin.
    var warnings: [String] = []
    var information: Information?

    /// A text that is printed instead of carrying out commands.
    enum Information: Equatable {
        /// `-h`: the usage, to standard error, as on Darwin.
        case usageAsError
        /// `--help`
        case usage
        /// `--version`
        case version
    }
}
