import NotifyCenter
import Testing
import notify

@testable import notifyutil

// Rules, b
@Suite("The command line")
struct ParserTests {
    private func commands(_ arguments: String...) throws -> [Command] { try Parser.parse(arguments).commands }

    private func refusal(_ arguments: [String]) -> String? {
        do throws(UsageError) {
            _ = try Parser.parse(arguments)
            return nil
        } catch {
            return error.message
        }
    }

    private func watch(_ name: String, _ count: Int? = nil, _ kind: Kind = .port) -> Command {
        .watch(Watch(name: name, count: count, kind: kind))
    }

    private func post(_ name: String, pause: Int = 100) -> Command {
        .post(name, pause: .milliseconds(pause))
    }

    // MARK: Darwin's grammar

    @Test("an empty command line has no commands") func nothing() throws {
        #expect(try Parser.parse([]) == Invocation())
    }

    @Test("commands keep their order, and accept any name")
    func order() throws {
        #expect(try commands("-p", "a", "-w", "b", "-g", "-p") == [post("a"), watch("b"), .getState("-p")])
    }

    @Test(
        "-N reports N posts, and -0 reports one",
        arguments: [("-1", 1), ("-0", 1), ("-12", 12), ("-007", 7), ("-3rd", 3), ("-99999999999999999999", Int.max)]
    )
    func counts(option: String, count: Int) throws { #expect(try commands(option, "a") == [watch("a", count)]) }

    @Test("an argument that begins with -w watches forever", arguments: ["-w", "-watch", "-w5"])
    func watches(option: String) throws { #expect(try commands(option, "a") == [watch("a")]) }

    @Test("a kind holds for the commands after it")
    func kinds() throws {
        let all = try commands(
            "-w",
            "a",
            "-check",
            "-w",
            "b",
            "-1",
            "c",
            "-file",
            "-p",
            "x",
            "-w",
            "d",
            "-plain",
            "-w",
            "e",
            "-dispatch",
            "-w",
            "f",
            "-port",
            "-w",
            "g"
        )
        #expect(
            all == [
                watch("a"), watch("b", nil, .check), watch("c", 1, .check), post("x"), watch("d", nil, .file),
                watch("e", nil, .plain), watch("f", nil, .dispatch), watch("g"),
            ]
        )
    }

    @Test("-signal without a number uses the last number, or 1")
    func signals() throws {
        #expect(
            try commands("-signal", "-w", "a", "-sig", "12", "-w", "b", "-signal", "-w", "c") == [
                watch("a", nil, .signal(1)), watch("b", nil, .signal(12)), watch("c", nil, .signal(12)),
            ]
        )
    }

    @Test("-z holds for the posts that follow it")
    func pauses() throws {
        #expect(
            try commands("-p", "a", "-z", "0", "-p", "b", "-z", "5000", "-p", "c") == [
                post("a"), post("b", pause: 0), post("c", pause: 5000),
            ]
        )
    }

    @Test(
        "-s takes a 64-bit decimal number; other text counts by its prefix, and warns",
        arguments: [
            ("123", 123, false), ("-1", UInt64.max, false), ("18446744073709551615", UInt64.max, false),
            ("+7", 7, false),
            ("12x", 12, true), ("", 0, true), ("0x10", 0, true), ("99999999999999999999", UInt64(Int64.max), true),
        ] as [(String, UInt64, Bool)]
    )
    func values(text: String, value: UInt64, warns: Bool) throws {
        let invocation = try Parser.parse(["-s", "a", text])
        #expect(invocation.commands == [.setState("a", value)])
        #expect(invocation.warnings.isEmpty == !warns)
    }

    @Test("-M and -R set options of the library")
    func libraryOptions() throws {
        #expect(try Parser.parse(["-M"]).options == UInt32(NOTIFY_OPT_DISPATCH))
        #expect(try Parser.parse(["-R", "-M"]).options == UInt32(NOTIFY_OPT_DISPATCH | NOTIFY_OPT_REGEN))
    }

    @Test("the last of -q and -v holds for the whole command line")
    func verbosity() throws {
        #expect(try Parser.parse(["-q", "-w", "a", "-v"]).verbosity == .verbose)
        #expect(try Parser.parse(["-v", "-q"]).verbosity == .quiet)
    }

    @Test("a request for help ends the reading of the command line")
    func help() throws {
        #expect(try Parser.parse(["-h", "-bogus"]).information == .usageAsError)
        #expect(try Parser.parse(["-help"]).information == .usageAsError)
        #expect(try Parser.parse(["--help", "-p"]).information == .usage)
        #expect(try Parser.parse(["--version", "-p"]).information == .version)
        #expect(refusal(["-bogus", "-h"]) == "unrecognized option: -bogus")
    }

    @Test(
        "a malformed command line is refused in Darwin's words",
        arguments: [
            (["-x"], "unrecognized option: -x"),
            (["a"], "unrecognized option: a"),
            ([""], "unrecognized option: "),
            (["-"], "unrecognized option: -"),
            (["-p", "a", "word"], "unrecognized option: word"),
            (["-p"], "name required following -p"),
            (["-w"], "name required following -w"),
            (["-12"], "name required following -12"),
            (["-g"], "name required following -g"),
            (["-s"], "name required following -s"),
            (["-s", "a"], "value required following -s name"),
            (["-z"], "timer value must be supplied following -z"),
            (["-z", "soon"], "-z soon is invalid\ntimer value must be an integer"),
            (["-z", "-1"], "-z -1 is invalid\ntimer value must be an integer"),
            (["-signal", "hup"], "-signal hup is invalid\nsignals must be specified as integer values"),
            (["--json"], "unrecognized option: --json"),
            (["-sig", "1.5"], "-sig 1.5 is invalid\nsignals must be specified as integer values"),
        ]
    )
    func refusals(arguments: [String], message: String) { #expect(refusal(arguments) == message) }

    // MARK: Beyond Darwin's

    @Test("the last option for the bus holds for the whole command line")
    func bus() throws {
        #expect(try Parser.parse(["-p", "a"]).bus == nil)
        #expect(try Parser.parse(["--session", "-p", "a", "--system"]).bus == .system)
        #expect(try Parser.parse(["--address", "unix:path=/b"]).bus == .address("unix:path=/b"))
        #expect(refusal(["--address"]) == "bus address required following --address")
    }

    @Test("a dump takes the argument up to the next option")
    func optionalValues() throws {
        #expect(try commands("--dump", "--dump", "/f", "-p", "a") == [.dump(path: nil), .dump(path: "/f"), post("a")])
    }
}
