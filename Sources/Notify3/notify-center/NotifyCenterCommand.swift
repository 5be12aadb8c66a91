import ArgumentParser
import Basics
import CommandSupport
import DBus
import Glibc
import NotifyCenter
import notify

@main
struct NotifyCenterCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "notify-center",
        abstract: "Posts to the notification centers of a bus, and shows what others post there.",
        discussion: """
            Exit status: 0 done; 64 wrong usage; 69 the bus or notifyd cannot be reached; 70 anything else failed; 74 the output cannot \
            be written; 77 not authorized. See notify-center(1).
            """,
        version: ProjectVersion.line(of: "notify-center"),
        subcommands: [PostCommand.self, WatchCommand.self, MonitorCommand.self, ListCommand.self]
    )

    static func main() {
        Output.prepare()
        StatusCause.keep()
        do throws(Problem) {
            main(try CommandLine.texts())
        } catch {
            Output.complain("\(error)")
            Glibc.exit(EX_USAGE)
        }
    }
}

struct BusOptions: ParsableArguments {
    @Option(
        name: .customLong("bus"),
        help: ArgumentHelp(
            "The bus: session, system, or an address.",
            discussion: "Otherwise $\(Bus.environmentVariable); else the session bus.",
            valueName: "bus"
        )
    )
    var name: String?

    func validate() throws {
        // The library reads the bus from the environment, and so does the rest of the program.
        if let name { setenv(Bus.environmentVariable, name, 1) }
        do throws(DBusError) {
            _ = try Bus.fromEnvironment.resolvedAddress()
        } catch  where error.code == .invalidArgument {
            throw ValidationError("\(error)")
        } catch {
            // The command reports its own failure.
        }
    }
}

/// Carries out a command. If it fails, the program ends with the failure's status.
func carryOut(_ body: () throws(Failure) -> Void) throws {
    do throws(Failure) {
        try body()
    } catch {
        Output.complain(error.explanation)
        throw ExitCode(ExitStatus(status: error.status).rawValue)
    }
}

/// Converts an error of the bus to a failure.
func onBus<Value>(_ body: () throws(DBusError) -> Value) throws(Failure) -> Value {
    do throws(DBusError) { return try body() } catch { throw Failure(error) }
}

extension CompletionKind {
    /// The names that are registered on the bus, if notifyd runs and responds within a second. Contains only names that
    /// need no quotes in a shell.
    static var registeredNames: CompletionKind {
        .custom { words, _, _ in
            if let option = words.lastIndex(of: "--bus"), option + 1 < words.count {
                setenv(Bus.environmentVariable, words[option + 1], 1)
            }
            let list = try? Notifyd.list(startsIt: false, timeout: .seconds(1))
            return list?.registeredNames.filter { $0.wholeMatch(of: /[A-Za-z0-9_.@%+,:\/-]+/) != nil } ?? []
        }
    }
}
