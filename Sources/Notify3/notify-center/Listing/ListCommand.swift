import ArgumentParser
import Basics
import CommandSupport
import DBus
import Glibc
import NotifyCenter

struct ListCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list",
        abstract: "Prints who is registered by notify(3), for which names, and their states.",
        discussion: "Asks notifyd, which the bus starts."
    )

    @Argument(help: "Print only names that begin with this prefix.", completion: .registeredNames)
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
            let list = try onBus { () throws(DBusError) in try Notifyd.list(startsIt: !noStart) }
            let listing = Listing(list, prefix: prefix, program: Notifyd.program)
            switch form {
            case .table:
                var lines = listing.table(userName: Listing.userName).lines
                if TerminalOutput.showsColour(STDOUT_FILENO) { lines[0] = "\u{1B}[1m\(lines[0])\u{1B}[0m" }
                Self.print(lines)
            case .json: Self.print(listing.json(userName: Listing.userName))
            case .names: Self.print(list.registeredNames.filter { $0.utf8.starts(with: prefix.utf8) }.map(\.visible))
            }
        }
    }

    private static func print(_ lines: [String]) {
        if !lines.isEmpty { Output.standard.write(lines.joined(separator: "\n") + "\n") }
    }
}

extension ListPage {
    /// Sorted, each name once.
    var registeredNames: [String] { Set(processes.flatMap { $0.report.names.map(\.name) }).sorted() }
}

/// notifyd's knowledge of other processes, which notify(3) does not give.
enum Notifyd {
    /// Returns the registered names and processes.
    static func list(startsIt: Bool, timeout: Duration = .seconds(25)) throws(DBusError) -> ListPage {
        let connection = try BusConnections.connection(to: .fromEnvironment)
        func call(_ message: consuming DBusMessage) throws(DBusError) -> [DBusValue] {
            try connection.callAndWait(message, timeout: timeout)
        }
        do throws(DBusError) {
            return try NotifydProtocol.list(call, options: startsIt ? [] : .noAutoStart)
        } catch  where error.isOfMissingService {
            throw DBusError(
                error.code,
                name: error.name,
                message: error.message,
                attempted: "ask notifyd",
                remedy: "start notifyd, or install its service file, so that the bus starts it (notifyd(8))"
            )
        }
    }

    /// Returns the path of a process's program; `nil` if the kernel does not let this process see it.
    static func program(of process: UInt32) -> String? {
        withUnsafeTemporaryAllocation(of: CChar.self, capacity: Int(PATH_MAX)) { path in
            let length = path.baseAddress.map { readlink("/proc/\(process)/exe", $0, path.count) } ?? 0
            return length > 0
                ? String(decoding: path[..<length].lazy.map { UInt8(bitPattern: $0) }, as: UTF8.self) : nil
        }
    }
}
