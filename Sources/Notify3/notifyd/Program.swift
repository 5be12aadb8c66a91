import Basics
import DBus
import Glibc
import NotifyCenter

@main
enum Program {
    static func main() { exit(run()) }

    private static func run() -> CInt {
        do throws(Problem) {
            let invocation = try Invocation(CommandLine.arguments.dropFirst())
            return switch invocation.action {
            case .help: print(Invocation.usage)
            case .version: print(ProjectVersion.line(of: "notifyd") + "\n")
            case .checkConfiguration(let file): check(file)
            case .status: status(invocation)
            case .serve: Server.run(invocation)
            }
        } catch {
            Diagnostics.write("\(error)")
            return EX_USAGE
        }
    }

    private static func print(_ text: String) -> CInt { writeAll(text, to: STDOUT_FILENO) == 0 ? 0 : EX_IOERR }

    private static func check(_ file: String) -> CInt {
        do throws(ConfigurationFileError) {
            let errors = ConfigurationParser.parse(try ConfigurationFile.read(file)).errors
            for error in errors { Diagnostics.write("\(file), \(error)") }
            return errors.isEmpty ? 0 : EX_DATAERR
        } catch {
            Diagnostics.write("\(error)")
            return switch error.reason {
            case .missing, .unreadable: EX_NOINPUT
            case .noFile, .foreignOwner, .writableByOthers, .tooLarge: EX_DATAERR
            }
        }
    }

    private static func status(_ invocation: Invocation) -> CInt {
        do throws(DBusError) {
            let connection = try DBusConnection.open(invocation.bus(starter: nil))
            // This call starts no notifyd, because the status is that of a running one.
            let status = try NotifydProtocol.status(
                { call throws(DBusError) in try connection.callAndWait(call) },
                options: .noAutoStart
            )
            return print(status)
        } catch  where error.name == "org.freedesktop.DBus.Error.NameHasNoOwner" {
            Diagnostics.write(
                "no notifyd runs on this bus; a call to it, such as notify-center list, makes the bus start it"
            )
        } catch {
            Diagnostics.write("\(error)")
        }
        return EX_UNAVAILABLE
    }
}

/// The whole command line, checked before anything is done. Pure.
struct Invocation {
    enum Action {
        case serve
        case status
        case checkConfiguration(String)
        case help
        case version
    }

    var action = Action.serve
    /// `nil` if the command line names no bus.
    var bus: Bus?
    var configuration: String?

    init(_ arguments: ArraySlice<String>) throws(Problem) {
        var rest = arguments
        func value(_ option: String, _ what: String) throws(Problem) -> String {
            guard let value = rest.popFirst() else { throw Problem("\(option) takes \(what)") }
            return value
        }
        while let argument = rest.popFirst() {
            switch argument {
            case "--session": bus = .session
            case "--system": bus = .system
            case "--address": bus = .address(try value(argument, "a D-Bus address"))
            case "--configuration": configuration = try value(argument, "a file")
            case "--status": action = .status
            case "--check-configuration": action = .checkConfiguration(try value(argument, "a file"))
            case "-h", "--help": action = .help
            case "--version": action = .version
            default: throw Problem("unrecognized argument: \(argument); see notifyd --help")
            }
        }
    }

    /// Returns the bus of the command line, else the bus that started this process, else the bus of the environment.
    func bus(starter: String?) -> Bus { bus ?? starter.map { .address($0) } ?? .fromEnvironment }

    static let usage = """
        usage: notifyd [--session | --system | --address ADDRESS] [--configuration FILE]
               notifyd --status [--session | --system | --address ADDRESS]
               notifyd --check-configuration FILE
               notifyd --help | --version

        Keeps what processes share for notify(3): the states of names and the registrations. Posts reserved names for processes
        that are authorized. The bus starts it when a process calls it. It may end at any time: when it starts again, the
        processes report their states and registrations. Posting and observing work without it.
          --session   the session bus
          --system    the system bus
          --address   the bus at a D-Bus address, for instance unix:path=/run/my/bus
                      (default: the bus that starts it; then the bus of NOTIFY_CENTER_BUS; then the session bus)
          --configuration        read this file instead of /etc/notify.conf or that of NOTIFY_CENTER_CONFIGURATION
          --status               print the status of the running notifyd
          --check-configuration  print the errors of a file
          -h, --help             this text
          --version              print the version
        Signals: SIGTERM and SIGINT end it; SIGHUP makes it read the configuration again; SIGUSR1 and SIGUSR2 make it write a short
        and a long status to notifyd_PID.status in $RUNTIME_DIRECTORY, as its units set it, or $XDG_RUNTIME_DIR (root without
        either: /var/run).
        Exit status: 0 done; 64 the command line is wrong; 65 the configuration has errors; 66 it cannot be read; 69 the bus
        cannot be reached or refuses, or another notifyd serves it; 71 the system has no resources left for it; 74 the output
        cannot be written.

        """
}
