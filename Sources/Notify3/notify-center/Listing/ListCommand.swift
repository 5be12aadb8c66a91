import ArgumentParser
import CommandSupport
import DBusTransport
import NotifyCenter
import NotifydProtocol

struct ListCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list",
        abstract: "Prints who is registered by notify(3), for which names, and their states.",
        discussion: "Asks notifyd, which the bus starts."
    )

    @Argument(help: "Only names that begin so.", completion: .registeredNames)
    var prefix = ""

    @Flag(exclusivity: .exclusive)
    var form = Form.table

    @Flag(help: "Fail if notifyd does not run, instead of having it started.")
    var noStart = false

    @OptionGroup var bus: BusOptions

    enum Form: EnumerableFlag {
        case table
        case json
        case names

        static func help(for value: Form) -> ArgumentHelp? {
            switch value {
            case .table: "Print a table (default)."
            case .json: "Print one JSON object on each line."
            case .names: "Print each name once, and nothing else."
            }
        }
    }

    func run() throws {
        try carryOut { () throws(Failure) in
            let lists = try attempting("list the registrations") { () throws(DBusError) in
                try Notifyd.list(startsIt: !noStart)
            }
            let listing = Listing(names: lists.names, processes: lists.processes, prefix: prefix)
            switch form {
            case .table:
                Output.standard.write(listing.table(userName: Listing.userName).text(isColourful: Table.isColourful))
            case .json: Self.print(listing.json(userName: Listing.userName))
            case .names: Self.print(lists.registeredNames.filter { $0.utf8.starts(with: prefix.utf8) }.map(\.visible))
            }
        }
    }

    private static func print(_ lines: [String]) {
        if !lines.isEmpty { Output.standard.write(lines.joined(separator: "\n") + "\n") }
    }
}

/// What notifyd knows of others, which notify(3) does not tell.
enum Notifyd {
    struct Lists {
        let names: [NameListing]
        let processes: [ProcessListing]

        /// In order, each once.
        var registeredNames: [String] { Set(processes.flatMap { $0.report.names.map(\.name) }).sorted() }
    }

    /// Who is registered.
    ///
    /// - Parameters:
    ///   - startsIt: whether the bus starts notifyd.
    ///   - timeout: how long to wait for the answer.
    static func list(startsIt: Bool, timeout: Duration = .seconds(25)) throws(DBusError) -> Lists {
        let connection = try BusConnections.connection(to: .fromEnvironment)
        let answer: [DBusValue]
        do throws(DBusError) {
            let call = try NotifydProtocol.call(.list, options: startsIt ? [] : .noAutoStart)
            answer = try connection.callAndWait(call, timeout: timeout)
        } catch  where error.isOfMissingService {
            throw DBusError(
                error.code,
                name: error.name,
                message: error.message,
                attempted: "ask notifyd",
                remedy: "start notifyd, or install its service file, so that the bus starts it (notifyd(8))"
            )
        }
        do {
            guard answer.count == 2, case .array(let names, _) = answer[0], case .array(let processes, _) = answer[1]
            else { throw NotifydProtocol.FieldError("List") }
            return Lists(names: try names.map(NameListing.init), processes: try processes.map(ProcessListing.init))
        } catch {
            throw DBusError(
                .malformed,
                message: "the answer to List has an unknown form",
                attempted: "ask notifyd",
                remedy: "use notify-center and notifyd of the same version"
            )
        }
    }
}
