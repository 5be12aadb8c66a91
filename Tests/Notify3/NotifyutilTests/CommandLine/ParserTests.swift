import Basics
import NotifyCenter
import Testing
import notify

@testable import notifyutil

// Rules, b
@Suite("The command line")
struct ParserTests {
    /// The commands of a command line without quotes.
    private func commands(_ line: String) throws -> [Command] {
        try Parser.parse(line.split(separator: " ").map(String.init)).commands
    }

    private func refusal(_ arguments: [String]) -> String? {
        do throws(Problem) {
            _ = try Parser.parse(arguments)
            return nil
        } catch {
            return error.description
        }
    }

    private func watch(_ name: String, _ count: Int? = nil, _ kind: Kind = .port) -> Command {
        .watch(Watch(name: name, count: count, kind: kind))
    }

    private func post(_ name: String, pause: Int = 100) -> Command { .post(name, pause: .milliseconds(pause)) }

    @Test("commands keep their order and accept any name; options hold for later commands")
    func order() throws {
        let lines: [(line: String, commands: [Command])] = [
            ("", []), ("-p a -w b -g -p", [post("a"), watch("b"), .getState("-p")]),
            ("-p a -z 0 -p b -z 5000 -p c", [post("a"), post("b", pause: 0), post("c", pause: 5000)]),
            // A dump takes the argument up to the next option.
            ("--dump --dump /f -p a", [.dump(path: nil), .dump(path: "/f"), post("a")]),
        ]
        for (line, expected) in lines { #expect(try commands(line) == expected, "\(line)") }
        #expect(try Parser.parse([]) == Invocation())
    }

    @Test("-N reports N posts, -0 one, and what begins with -w watches forever")
    func counts() throws {
        let options: [(option: String, count: Int?)] = [
            ("-1", 1), ("-0", 1), ("-12", 12), ("-007", 7), ("-3rd", 3), ("-99999999999999999999", Int.max),
            ("-w", nil), ("-watch", nil), ("-w5", nil),
        ]
        for (option, count) in options { #expect(try commands("\(option) a") == [watch("a", count)], "\(option)") }
    }

    @Test("a kind holds for the commands after it")
    func kinds() throws {
        let all = try commands(
            "-w a -check -w b -1 c -file -p x -w d -plain -w e -dispatch -w f -port -w g "
                + "-signal -w h -sig 12 -w i -signal -w j"
        )
        let expected: [Command] = [
            watch("a"), watch("b", nil, .check), watch("c", 1, .check), post("x"), watch("d", nil, .file),
            watch("e", nil, .plain), watch("f", nil, .dispatch), watch("g"),
            // Without a number, the last number or 1.
            watch("h", nil, .signal(1)), watch("i", nil, .signal(12)), watch("j", nil, .signal(12)),
        ]
        #expect(all == expected)
    }

    @Test("-s takes a 64-bit decimal number; other text counts by its prefix, and warns")
    func values() throws {
        let texts: [(text: String, value: UInt64, warns: Bool)] = [
            ("123", 123, false), ("-1", .max, false), ("18446744073709551615", .max, false), ("+7", 7, false),
            ("12x", 12, true), ("", 0, true), ("0x10", 0, true), ("99999999999999999999", UInt64(Int64.max), true),
        ]
        for (text, value, warns) in texts {
            let invocation = try Parser.parse(["-s", "a", text])
            #expect(invocation.commands == [.setState("a", value)] && invocation.warnings.isEmpty == !warns, "\(text)")
        }
    }

    @Test("options of the library, verbosity and the bus hold for the whole command line")
    func wholeLine() throws {
        let options = try [["-M"], ["-R", "-M"]].map { try Parser.parse($0).options }
        #expect(options == [UInt32(NOTIFY_OPT_DISPATCH), UInt32(NOTIFY_OPT_DISPATCH | NOTIFY_OPT_REGEN)])
        #expect(try Parser.parse(["-q", "-w", "a", "-v"]).verbosity == .verbose)
        #expect(try Parser.parse(["-v", "-q"]).verbosity == .quiet)
        let lines = [["-p", "a"], ["--session", "-p", "a", "--system"], ["--address", "unix:path=/b"]]
        let buses = try lines.map { try Parser.parse($0).bus }
        #expect(buses == [nil, .system, .address("unix:path=/b")])
    }

    @Test("a request for help ends the reading of the command line")
    func help() throws {
        let lines = [["-h", "-bogus"], ["-help"], ["--help", "-p"], ["--version", "-p"]]
        let information = try lines.map { try Parser.parse($0).information }
        #expect(information == [.usageAsError, .usageAsError, .usage, .version])
        #expect(refusal(["-bogus", "-h"]) == "unrecognized option: -bogus")
    }

    @Test("a malformed command line is refused in Darwin's words")
    func refusals() {
        let lines: [(arguments: [String], message: String)] = [
            (["-x"], "unrecognized option: -x"), (["a"], "unrecognized option: a"), ([""], "unrecognized option: "),
            (["-"], "unrecognized option: -"), (["-p", "a", "word"], "unrecognized option: word"),
            (["--json"], "unrecognized option: --json"),
            (["-p"], "name required following -p"), (["-w"], "name required following -w"),
            (["-12"], "name required following -12"), (["-g"], "name required following -g"),
            (["-s"], "name required following -s"), (["-s", "a"], "value required following -s name"),
            (["-z"], "timer value must be supplied following -z"),
            (["-z", "soon"], "-z soon is invalid\ntimer value must be an integer"),
            (["-z", "-1"], "-z -1 is invalid\ntimer value must be an integer"),
            (["-signal", "hup"], "-signal hup is invalid\nsignals must be specified as integer values"),
            (["-sig", "1.5"], "-sig 1.5 is invalid\nsignals must be specified as integer values"),
            (["--address"], "bus address required following --address"),
        ]
        for (arguments, message) in lines { #expect(refusal(arguments) == message, "\(arguments)") }
    }
}
