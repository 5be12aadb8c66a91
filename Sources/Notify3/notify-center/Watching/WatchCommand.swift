import ArgumentParser
import Basics
import CommandSupport
import DBus
import NotifyCenter

struct WatchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "watch",
        abstract: "Prints each post of names.",
        discussion: """
            A line has the time, the name and the center, and in the distributed center the object and the userInfo as JSON.
            """
    )

    @Argument(help: "The names to watch.", completion: .registeredNames)
    var names: [String]

    @Flag(help: "Watch the distributed center.")
    var distributed = false

    @Option(help: ArgumentHelp("Only posts with this object; only with --distributed.", valueName: "text"))
    var object: String?

    @OptionGroup var options: WatchOptions

    func validate() throws {
        guard distributed || object == nil else {
            throw ValidationError("--object needs --distributed: the Darwin center carries names only.")
        }
    }

    func run() throws {
        try options.report(findsSenders: false) { reporter throws(DBusError) in
            for name in names {
                let name = NotificationName(name)
                if distributed {
                    try reporter.observeDistributed(name, object: object)
                } else {
                    try reporter.observeDarwin(name)
                }
            }
        }
    }
}

struct MonitorCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "monitor",
        abstract: "Prints who posts what in both centers.",
        discussion: """
            As watch, with the process and the program of the poster. Both are “-” if the poster ended before the bus could be asked.
            """
    )

    @Argument(help: "The names to watch; without any, all.", completion: .registeredNames)
    var names: [String] = []

    @OptionGroup var options: WatchOptions

    func run() throws {
        try options.report(findsSenders: true) { reporter throws(DBusError) in
            for name in names.isEmpty ? [nil] : names.map({ NotificationName($0) }) {
                try reporter.observeDarwin(name)
                try reporter.observeDistributed(name, object: nil)
            }
        }
    }
}

struct WatchOptions: ParsableArguments {
    @Flag(help: "Print one JSON object on each line.")
    var json = false

    @Option(name: .shortAndLong, help: ArgumentHelp("End after this many posts.", valueName: "number"))
    var count: Int?

    @Flag(help: "Write “ready” to standard error when every later post will be printed.")
    var ready = false

    @OptionGroup var bus: BusOptions

    func validate() throws {
        if let count, count < 1 { throw ValidationError("--count needs a number from 1 on.") }
    }

    /// Prints posts until the requested number is reached.
    func report(findsSenders: Bool, observe: (PostReporter) throws(DBusError) -> Void) throws {
        try carryOut { () throws(Failure) in
            let reporter = try onBus { () throws(DBusError) in
                let reporter = try PostReporter(isJSON: json, count: count, findsSenders: findsSenders)
                try observe(reporter)
                return reporter
            }
            if ready { Output.error.write("ready\n") }
            reporter.run()
        }
    }
}
