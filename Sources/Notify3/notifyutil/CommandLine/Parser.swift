import Basics
import Glibc
import NotifyCenter
import notify

/// The first pass (notifyutil(1)): reads the whole command line before any command is carried out. An option holds for
/// the commands after it. The bus, the form of the output and `--ready` hold for all commands. Pure.
struct Parser {
    private var rest: ArraySlice<String>
    private var result = Invocation()
    private var kind = Kind.port
    private var signal: CInt = 1
    private var pause = Duration.milliseconds(100)

    /// - Throws: a wrong command line, with the text for standard error, in Darwin's words if Darwin's tool refuses
    ///   too.
    static func parse(_ arguments: [String]) throws(Problem) -> Invocation {
        var parser = Parser(rest: arguments[...])
        // A request for help ends the reading, as on Darwin.
        while parser.result.information == nil, let argument = parser.rest.popFirst() { try parser.take(argument) }
        return parser.result
    }

    private init(rest: ArraySlice<String>) { self.rest = rest }

    private mutating func take(_ argument: String) throws(Problem) {
        switch argument {
        case "-h", "-help": result.information = .usageAsError
        case "--help": result.information = .usage
        case "--version": result.information = .version
        case "-q": result.verbosity = .quiet
        case "-v": result.verbosity = .verbose
        case "--ready": result.announcesReady = true
        case "-M": result.options |= UInt32(NOTIFY_OPT_DISPATCH)
        case "-R": result.options |= UInt32(NOTIFY_OPT_REGEN)
        case "--session": result.bus = .session
        case "--system": result.bus = .system
        case "--address": result.bus = .address(try value("bus address required following --address"))
        case "-z": try takePause()
        case "-port": kind = .port
        case "-file": kind = .file
        case "-check": kind = .check
        case "-plain": kind = .plain
        case "-dispatch": kind = .dispatch
        case "-signal", "-sig": try takeSignal(argument)
        default: try takeCommand(argument)
        }
    }

    private mutating func takeCommand(_ argument: String) throws(Problem) {
        switch argument {
        case "-p": result.commands.append(.post(try name(argument), pause: pause))
        case "-g": result.commands.append(.getState(try name(argument)))
        case "-s": try takeState()
        case "--dump": result.commands.append(.dump(path: optionalValue()))
        default:
            guard let count = Self.watchCount(argument) else { throw Problem("unrecognized option: \(argument)") }
            result.commands.append(.watch(Watch(name: try name(argument), count: count, kind: kind)))
        }
    }

    // MARK: Values

    private mutating func value(_ complaint: String) throws(Problem) -> String {
        guard let value = rest.popFirst() else { throw Problem(complaint) }
        return value
    }

    private mutating func name(_ option: String) throws(Problem) -> String {
        try value("name required following \(option)")
    }

    /// Returns the next argument, unless it is an option.
    private mutating func optionalValue() -> String? {
        guard let next = rest.first, !next.utf8.starts(with: "-".utf8) else { return nil }
        return rest.popFirst()
    }

    /// Returns the count of `-w…`, which is `nil`, and of `-N`; `nil` for other arguments. As on Darwin, `-0` means
    /// `-1`, and characters after the digits are ignored.
    private static func watchCount(_ argument: String) -> Int?? {
        guard argument.utf8.first == UInt8(ascii: "-") else { return nil }
        let digits = argument.utf8.dropFirst().prefix { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }
        if digits.isEmpty { return argument.utf8.starts(with: "-w".utf8) ? .some(nil) : nil }
        return max(1, Int(String(Substring(digits))) ?? .max)
    }

    // MARK: Options with values

    private mutating func takePause() throws(Problem) {
        let text = try value("timer value must be supplied following -z")
        guard let milliseconds = Int32(text), milliseconds >= 0 else {
            throw Problem("-z \(text) is invalid\ntimer value must be an integer")
        }
        pause = .milliseconds(Int(milliseconds))
    }

    private mutating func takeSignal(_ option: String) throws(Problem) {
        if let text = optionalValue() {
            guard let number = CInt(text) else {
                throw Problem("\(option) \(text) is invalid\nsignals must be specified as integer values")
            }
            signal = number
        }
        kind = .signal(signal)
    }

    /// Reads a decimal number, as on Darwin. A negative number becomes its two's complement. If the text is not a
    /// number, the number at its beginning counts. Unlike on Darwin, all 64 bits can be written without a sign.
    private mutating func takeState() throws(Problem) {
        let name = try name("-s")
        let text = try value("value required following -s name")
        guard let value = UInt64(text) ?? Int64(text).map({ UInt64(bitPattern: $0) }) else {
            let value = UInt64(bitPattern: Int64(strtoll(text, nil, 10)))
            result.warnings.append("value \(text) is not a 64-bit integer; using \(value)")
            return result.commands.append(.setState(name, value))
        }
        result.commands.append(.setState(name, value))
    }
}
