import DBusTransport

/// The whole command line, checked before anything is done. Pure.
struct Invocation: Equatable {
    enum Deed: Equatable {
        case serve
        case status
        case checkConfiguration(String)
        case help
    }

    struct Refusal: Error, Equatable {
        let message: String
    }

    var deed = Deed.serve
    /// `nil` where the command line names none.
    var bus: Bus?
    var configuration: String?

    init(_ arguments: some Sequence<String>) throws(Refusal) {
        var rest = Array(arguments)[...]
        func value(_ option: String, _ what: String) throws(Refusal) -> String {
            guard let value = rest.popFirst() else { throw Refusal(message: "\(option) takes \(what)") }
            return value
        }
        while let argument = rest.popFirst() {
            switch argument {
            case "--session": bus = .session
            case "--system": bus = .system
            case "--address": bus = .address(try value(argument, "a D-Bus address"))
            case "--configuration": configuration = try value(argument, "a file")
            case "--status": deed = .status
            case "--check-configuration": deed = .checkConfiguration(try value(argument, "a file"))
            case "-h", "--help": deed = .help
            default: throw Refusal(message: "unrecognized argument: \(argument); see notifyd --help")
            }
        }
    }

    /// The bus to use: that of the command line, else the one that started this process, else that of the environment.
    func bus(starter: String?) -> Bus { bus ?? starter.map { .address($0) } ?? .fromEnvironment }

    static let usage = """
        usage: notifyd [--session | --system | --address ADDRESS] [--configuration FILE]
               notifyd --status [--session | --system | --address ADDRESS]
               notifyd --check-configuration FILE

        Keeps what outlives a process for notify(3): the state of names, who is registered for them, and which paths are
        monitored. The bus starts it when it is needed, and it may end at any time: processes tell it anew what they have.
        Posting and observing do without it.
          --session   the session bus
          --system    the system bus
          --address   the bus at a D-Bus address, for instance unix:path=/run/my/bus
                      (default: the bus that starts it, else what NOTIFY_CENTER_BUS names, else the session bus)
          --configuration        the file to read instead of /etc/notify.conf or what NOTIFY_CENTER_CONFIGURATION names
          --status               print what the running notifyd knows
          --check-configuration  print what is wrong with a file
          -h, --help             this text
        Signals: SIGTERM and SIGINT end it; SIGHUP has it read the configuration again; SIGUSR1 and SIGUSR2 have it write a short
        and a long status to $XDG_RUNTIME_DIR/notifyd_PID.status (root without it: /var/run).
        Exit status: 0 done; 64 the command line is wrong; 65 the configuration has problems; 66 it cannot be read; 69 the bus
        cannot be reached or refuses, or another notifyd serves it; 71 the system grants too little; 74 the output cannot be
        written.

        """
}
