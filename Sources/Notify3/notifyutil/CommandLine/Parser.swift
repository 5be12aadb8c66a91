import NotifyCenter
import notify

/// The first pass (notifyutil(1)): reads the whole command line before any command is carried out. An option holds for the commands
/// after it; the bus, the form of the output and `--ready` hold for all commands. Pure.
struct Parser {
    private enum Center: Equatable {
        case darwin
        case distributed(object: String?, userInfo: UserInfo?)
    }

    private var rest: ArraySlice<String>
    private var result = Invocation()
    private var kind = Kind.port
    private var signal: CInt = 1
    private var pause = Duration.milliseconds(100)
    private var center = Center.darwin

    /// - Throws: ``UsageError`` with the text for standard error, in Darwin's words where Darwin's tool refuses too.
    static func parse(_ arguments: [String]) throws(UsageError) -> Invocation {
        var parser = Parser(rest: arguments[...])
        // A request for help ends the reading, as on Darwin.
        while parser.result.help == nil, let argument = parser.rest.popFirst() { try parser.take(argument) }
        return parser.result
    }

    private init(rest: ArraySlice<String>) { self.rest = rest }

    private mutating func take(_ argument: String) throws(UsageError) {
        switch argument {
        case "-h", "-help": result.help = .error
        case "--help": result.help = .output
        case "-q": result.style.verbosity = .quiet
        case "-v": result.style.verbosity = .verbose
        case "--json": result.style.isJSON = true
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
        case "--darwin": center = .darwin
        case "--distributed": center = .distributed(object: nil, userInfo: nil)
        case "--object": try takeObject()
        case "--userinfo": try takeUserInfo()
        default: try takeCommand(argument)
        }
    }

    private mutating func takeCommand(_ argument: String) throws(UsageError) {
        switch argument {
        case "-p": result.commands.append(.post(try post(name(argument))))
        case "-g": result.commands.append(.getState(try name(argument)))
        case "-s": try takeState()
        case "--list": result.commands.append(.list(prefix: optionalValue() ?? ""))
        case "--dump": result.commands.append(.dump(path: optionalValue()))
        case "--monitor":
            var names: [String] = []
            while let name = optionalValue() { names.append(name) }
            result.commands.append(.monitor(names))
        default:
            guard let count = Self.watchCount(argument) else {
                throw UsageError("unrecognized option: \(argument)")
            }
            result.commands.append(.watch(try watch(name(argument), count: count.count)))
        }
    }

    // MARK: Values

    private mutating func value(_ complaint: String) throws(UsageError) -> String {
        guard let value = rest.popFirst() else { throw UsageError(complaint) }
        return value
    }

    private mutating func name(_ option: String) throws(UsageError) -> String {
        try value("name required following \(option)")
    }

    /// The next argument, unless it is an option.
    private mutating func optionalValue() -> String? {
        guard let next = rest.first, !next.utf8.starts(with: "-".utf8) else { return nil }
        return rest.popFirst()
    }

    /// What `-w…` and `-N` ask for; `nil` for other arguments. `-0` is as `-1`, and what follows the digits does not matter, as on
    /// Darwin.
    private static func watchCount(_ argument: String) -> (count: Int?, Void)? {
        guard argument.utf8.first == UInt8(ascii: "-") else { return nil }
        let digits = argument.utf8.dropFirst().prefix { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }
        if digits.isEmpty { return argument.utf8.starts(with: "-w".utf8) ? (nil, ()) : nil }
        return (max(1, Int(String(Substring(digits))) ?? .max), ())
    }

    // MARK: Options with values

    private mutating func takePause() throws(UsageError) {
        let text = try value("timer value must be supplied following -z")
        guard let milliseconds = Int32(text), milliseconds >= 0 else {
            throw UsageError("-z \(text) is invalid\ntimer value must be an integer")
        }
        pause = .milliseconds(Int(milliseconds))
    }

    private mutating func takeSignal(_ option: String) throws(UsageError) {
        if let text = optionalValue() {
            guard let number = CInt(text) else {
                throw UsageError("\(option) \(text) is invalid\nsignals must be specified as integer values")
            }
            signal = number
        }
        kind = .signal(signal)
    }

    private mutating func takeState() throws(UsageError) {
        let name = try name("-s")
        let text = try value("value required following -s name")
        let state = StateText(text)
        if let warning = state.warning { result.warnings.append(warning) }
        result.commands.append(.setState(name, state.value))
    }

    private mutating func takeObject() throws(UsageError) {
        let object = try value("text required following --object")
        guard case .distributed(_, let userInfo) = center else { throw Self.needsCenter("--object") }
        center = .distributed(object: object, userInfo: userInfo)
    }

    private mutating func takeUserInfo() throws(UsageError) {
        let text = try value("JSON object required following --userinfo")
        guard case .distributed(let object, _) = center else { throw Self.needsCenter("--userinfo") }
        do throws(JSONReader.SyntaxError) {
            guard case .dictionary(let userInfo) = try JSONReader.read(text) else {
                throw JSONReader.SyntaxError(offset: 0, reason: "the value is not an object")
            }
            center = .distributed(object: object, userInfo: userInfo)
        } catch {
            throw UsageError("--userinfo \(text) is invalid\nbyte \(error.offset): \(error.reason)")
        }
    }

    private static func needsCenter(_ option: String) -> UsageError {
        UsageError("\(option) needs --distributed before it: the Darwin center carries names only")
    }

    // MARK: Commands in force of the options

    private func post(_ name: String) -> Post {
        switch center {
        case .darwin: Post(name: name, content: .darwin, pause: pause)
        case .distributed(let object, let userInfo):
            Post(name: name, content: .distributed(object: object, userInfo: userInfo), pause: pause)
        }
    }

    private func watch(_ name: String, count: Int?) -> Watch {
        switch center {
        case .darwin: Watch(name: name, count: count, source: .darwin(kind))
        case .distributed(let object, _): Watch(name: name, count: count, source: .distributed(object: object))
        }
    }
}
