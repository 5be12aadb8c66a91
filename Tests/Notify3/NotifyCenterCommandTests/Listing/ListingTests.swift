import Basics
import NotifyCenter
import Testing

@testable import notify_center

@Suite("Lists")
struct ListingTests {
    private static func process(_ pid: UInt32, suspensions: UInt32 = 0, _ names: [NameReport]) -> ProcessListing {
        let report = ProcessReport(suspensions: suspensions, names: names)
        return ProcessListing(connection: ":1.\(pid)", process: pid, user: 1000, report: report)
    }

    private static let registered = [
        NameReport(name: "b", registrations: [.init(token: 4, kind: .signal, suspensions: 0, deliveries: 3)]),
        NameReport(
            name: "a",
            monitors: [MonitorReport(token: 3, path: "/etc/hosts", flags: 0)],
            registrations: [
                .init(token: 3, kind: .dispatch, suspensions: 1, deliveries: 0),
                .init(token: 2, kind: .check, suspensions: 0, deliveries: 0),
            ]
        ),
    ]
    private static let processes = [
        process(20, registered), process(3, suspensions: 2, [NameReport(name: "\u{1B}evil\n")]),
    ]

    private static let names = [
        NameListing(name: "a", state: .max, isPermanent: false), NameListing(name: "kept", state: 5, isPermanent: true),
    ]

    private static var list: ListPage {
        var list = ListPage()
        (list.names, list.processes) = (names, processes)
        return list
    }

    private func listing(_ prefix: String = "") -> Listing {
        Listing(Self.list, prefix: prefix) { "/usr/bin/prog\($0)" }
    }

    @Test("a table is sorted by process, name and token, and has no control characters")
    func table() {
        let lines = listing().table { $0 == 1000 ? "ann" : nil }.lines
        let rows = lines.map { $0.split(separator: " ", omittingEmptySubsequences: true) }
        #expect(
            rows.map { $0.map(String.init) } == [
                ["PID", "USER", "PROGRAM", "NAME", "TOKEN", "KIND", "SUSPENDED", "COUNT", "STATE"],
                ["3", "ann", "prog3", #"\u001bevil\u000a"#, "-", "-", "2", "-", "0"],
                ["20", "ann", "prog20", "a", "2", "check", "0", "0", "18446744073709551615"],
                ["20", "ann", "prog20", "a", "+", "/etc/hosts", "3", "dispatch", "1", "0", "18446744073709551615"],
                ["20", "ann", "prog20", "b", "4", "signal", "0", "3", "0"],
                ["-", "-", "-", "kept", "-", "-", "0", "-", "5"],
            ]
        )
        #expect(listing("b").table { _ in nil }.lines[1].contains("1000"))
    }

    @Test("JSON has an object for each row")
    func json() throws {
        let lines = listing().json { _ in "ann" }
        #expect(lines.count == 5)
        #expect(
            lines[1]
                == #"{"type":"registration","name":"a","pid":20,"uid":1000,"user":"ann","program":"/usr/bin/prog20","token":2,"#
                + #""kind":"check","suspended":0,"count":0,"state":18446744073709551615,"paths":[]}"#
        )
        _ = try lines.map(jsonObject)
        #expect(lines[2].contains(#""paths":["/etc/hosts"]"#))
        #expect(lines[4].hasPrefix(#"{"type":"name","name":"kept","pid":null,"#))
    }

    @Test("a prefix is compared byte by byte")
    func prefix() {
        #expect(listing("ke").rows.map(\.name) == ["kept"])
        #expect(listing("a").rows.map(\.token) == [2, 3])
        #expect(listing("z").rows.isEmpty)
    }
}
