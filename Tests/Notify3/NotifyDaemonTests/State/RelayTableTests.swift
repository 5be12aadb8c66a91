import NotifyCenter
import Testing

@testable import notifyd

@Suite struct RelayTableTests {
    private var table = RelayTable<Int, Int>()
    private let darwin = WireKind.darwin.rawValue
    private let distributed = WireKind.distributed.rawValue

    private func receivers(_ interface: String, postedBy poster: String = "") -> Set<String> {
        Set(table.receivers(of: interface, postedBy: poster).map(\.connection))
    }

    @Test mutating func receiversHaveTheInterfaceOrItsCenterUntilTheyEndAndAreNotThePoster() throws {
        let interfaces = [":1": "\(darwin).a", ":2": darwin, ":3": distributed, ":4": "\(darwin).b"]
        for (connection, interface) in interfaces { table.begin(interface, 0, for: connection, of: 1) }
        table.begin("\(darwin).a", 0, for: ":1", of: 1)
        #expect(receivers("\(darwin).a", postedBy: ":9") == [":1", ":2"])
        #expect(receivers("\(darwin).a", postedBy: ":1") == [":2"])
        #expect(receivers("org.example", postedBy: ":9") == [])
        table.end("\(darwin).a", for: ":1")
        #expect(receivers("\(darwin).a") == [":2"])
        table.begin("\(darwin).b", 0, for: ":1", of: 1)
        for connection in interfaces.keys { table.gone(connection) }
        #expect(table.isIdle)
        let most = (0..<RelayTable<Int, Int>.limits.connection).map { "\(darwin).a\($0)" }
        try table.check(most, for: ":1", of: 1)
    }

    @Test mutating func otherInterfacesAndMoreThanAConnectionOrAUserMayHaveAreRefused() throws {
        for interface in [
            "", "org.example.a", "org.notifycenter.Darwin1a", "org.notifycenter.Notifyd1",
            "org.notifycenter.Darwin1." + String(repeating: "a", count: 255),
        ] {
            #expect(throws: Refusal.self, "\(interface)") { try table.check([interface], for: ":1", of: 1) }
        }
        let limits = RelayTable<Int, Int>.limits
        let names = (0...limits.connection).map { "\(darwin).a\($0)" }
        #expect(throws: Refusal.self) { try table.check(names, for: ":1", of: 1) }
        for number in 0..<limits.user { table.begin("\(darwin).a", 0, for: ":1.\(number)", of: 1) }
        #expect(throws: Refusal.self) { try table.check(["\(darwin).a"], for: ":1.x", of: 1) }
        try table.check(["\(darwin).a"], for: ":1.0", of: 1)
        try table.check(["\(darwin).a"], for: ":1.x", of: 2)
    }

    @Test mutating func aPausedConnectionGetsNothingAndKeepsItsPlace() throws {
        let (a, b) = ("\(darwin).a", "\(darwin).b")
        for interface in [a, b] { table.begin(interface, 0, for: ":1", of: 1) }
        table.pause(a, for: ":1", owing: 7, bytes: 1)
        table.pause(a, for: ":1", owing: 8, bytes: 1)
        table.pause(a, for: ":2", owing: 9, bytes: 1)
        #expect(receivers(a).isEmpty && receivers(b) == [":1"])
        let pause = try #require(table.pauses.first)
        #expect(table.pauses.count == 1 && table.owed(pause) == 7)
        table.begin(a, 0, for: ":1", of: 1)
        #expect(receivers(a) == [":1"] && table.pauses.isEmpty && table.owed(pause) == nil)
        table.pause(b, for: ":1", owing: nil, bytes: 1)
        table.gone(":1")
        #expect(table.isIdle && table.pauses.isEmpty)
    }

    @Test mutating func postsOwedToAUserAreBoundedInBytes() {
        let size = RelayTable<Int, Int>.bytesOfMessage
        let most = RelayTable<Int, Int>.mostOwedBytes / (2 * size)
        for number in 0...most {
            table.begin("\(darwin).a", 0, for: ":\(number)", of: 1)
            table.pause("\(darwin).a", for: ":\(number)", owing: number, bytes: size)
        }
        func owed(_ number: Int) -> Int? { table.owed(.init(connection: ":\(number)", interface: "\(darwin).a")) }
        #expect(owed(most - 1) == most - 1 && owed(most) == nil)
        // A receiver that gets its post or disconnects makes room.
        table.begin("\(darwin).a", 0, for: ":0", of: 1)
        table.gone(":1")
        table.pause("\(darwin).a", for: ":0", owing: 7, bytes: 2 * size)
        #expect(owed(0) == 7)
    }

    @Test func thePathOfARelayedPostNamesItsPoster() {
        for poster in [":1.42", ":1.0", ":a-b_c.7"] {
            let path = NotifydProtocol.relayPath(ofPostsBy: poster)
            let posters = [path, "/org/notifycenter", path + "_"].map { NotifydProtocol.poster(ofRelayPath: $0) }
            #expect(posters == [poster, nil, nil])
        }
    }
}
