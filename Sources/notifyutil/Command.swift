import NotifyCenter

/// What the command line asks for, in Darwin's grammar: options and deeds in one row, carried out from left to right.
enum Command: Equatable {
    case post(String)
    /// Report posts of a name; `nil` for ever, else that many.
    case watch(String, count: Int?)
}

/// How events are shown.
enum Format: Equatable {
    /// The name, as on Darwin.
    case plain
    /// `-v`: token, time and name.
    case verbose
    /// `-q`: nothing.
    case quiet
    /// `--json`: one object a line.
    case json
}

/// The whole command line, checked before anything is done.
struct Invocation: Equatable {
    var commands: [Command] = []
    var format = Format.plain
    var bus = Bus.fromEnvironment
    var pause = Duration.milliseconds(100)
    var showsHelp = false
    /// Whether to say when all watchers are in force.
    var announces = false

    struct Refusal: Error, Equatable {
        let message: String
    }

    init(_ arguments: some Sequence<String>) throws(Refusal) {
        var rest = Array(arguments)[...]
        func value(_ option: String, _ what: String) throws(Refusal) -> String {
            guard let value = rest.popFirst() else { throw Refusal(message: "\(what) required following \(option)") }
            return value
        }
        while let argument = rest.popFirst() {
            switch argument {
            case "-h", "-help", "--help": showsHelp = true
            case "-q": format = .quiet
            case "-v": format = .verbose
            case "--json": format = .json
            case "--ready": announces = true
            case "--session": bus = .session
            case "--system": bus = .system
            case "--address": bus = .address(try value(argument, "bus address"))
            case "-z":
                let text = try value(argument, "timer value")
                guard let milliseconds = Int(text), milliseconds >= 0 else {
                    throw Refusal(message: "-z \(text) is invalid: the timer value must be a number of milliseconds")
                }
                pause = .milliseconds(milliseconds)
            case "-p": commands.append(.post(try value(argument, "name")))
            case "-w": commands.append(.watch(try value(argument, "name"), count: nil))
            default:
                guard argument.hasPrefix("-"), let count = Int(argument.dropFirst()), count >= 0 else {
                    let isOption = argument.hasPrefix("-")
                    throw Refusal(message: isOption ? "unrecognized option: \(argument)" : "“\(argument)”: -p or -w?")
                }
                // -0 counts as -1, as on Darwin.
                commands.append(.watch(try value(argument, "name"), count: max(1, count)))
            }
        }
    }
}
