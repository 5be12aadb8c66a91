import DBusTransport
import Glibc
import NotifyDaemon
import NotifydProtocol

/// Carries out an invocation.
struct Program {
    let arguments: [String]

    func run() -> CInt {
        do throws(Invocation.Refusal) {
            let invocation = try Invocation(arguments)
            return switch invocation.deed {
            case .help: print(Invocation.usage)
            case .checkConfiguration(let file): check(file)
            case .status: status(invocation)
            case .serve: Server(invocation).run()
            }
        } catch {
            Diagnostics.write(error.message)
            return Exit.usage
        }
    }

    private func print(_ text: String) -> CInt { Diagnostics.write(text, to: 1) ? 0 : Exit.output }

    private func check(_ file: String) -> CInt {
        do throws(ConfigurationFile.Failure) {
            let problems = ConfigurationParser.parse(try ConfigurationFile.read(file)).problems
            for problem in problems { Diagnostics.write("\(file), \(problem)") }
            return problems.isEmpty ? 0 : Exit.problems
        } catch {
            Diagnostics.write("\(error)")
            return switch error.reason {
            case .missing, .unreadable: Exit.noConfiguration
            case .noFile, .foreignOwner, .writableByOthers, .tooLarge: Exit.problems
            }
        }
    }

    private func status(_ invocation: Invocation) -> CInt {
        do throws(DBusError) {
            let connection = try DBusConnection.open(invocation.bus(starter: nil))
            // To ask about the running one, not to start one.
            let answer = try connection.callAndWait(NotifydProtocol.call(.status, options: .noAutoStart))
            return print(answer.first?.stringValue ?? "")
        } catch  where error.name == "org.freedesktop.DBus.Error.NameHasNoOwner" {
            Diagnostics.write(
                "no notifyd runs on this bus; whoever calls it, such as notifyutil --list, has the bus start it"
            )
            return Exit.unavailable
        } catch {
            Diagnostics.write("\(error)")
            return Exit.unavailable
        }
    }
}
