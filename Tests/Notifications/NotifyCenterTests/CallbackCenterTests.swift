import Basics
import DBus
@_spi(Extensions) import NotifyCenterTestKit
import Synchronization
import Testing

@testable import NotifyCenter

/// Tests the semantics that the C symbols and Apple's Swift functions share. The tests of these two check the
/// conversion of arguments.
@Suite("Centers whose observers are pointers")
struct CallbackCenterTests {
    private typealias Center = CallbackCenter
    private let bus: PrivateBus
    private let log = Log()

    init() throws { bus = try PrivateBus() }

    private var distributed: Center { .distributed(DistributedNotifyCenter(bus: bus.bus)) }
    private var darwin: Center { .darwin(DarwinNotifyCenter(bus: bus.bus)) }

    private func add(
        _ label: String,
        to center: Center,
        observer: UInt?,
        name: NotificationName?,
        object: Center.Object? = nil
    ) throws {
        try center.add(observer, name: name, object: object, suspensionBehavior: .coalesce) { [log] notification in
            log.add("\(label) \(notification.name) \(notification.object?.text ?? "-")")
        }
    }

    private func post(_ center: Center, _ name: NotificationName, _ object: Center.Object? = nil) throws {
        try center.post(name, object: object, content: .none, options: [])
    }

    /// Returns the calls since the last use. Waits for the observer `end`, and leaves out its call.
    private func calls() async throws -> [String] {
        var taken: [String] = []
        try await eventually("the end is called") {
            taken += log.take()
            return taken.contains("end end -")
        }
        return taken.filter { $0 != "end end -" }
    }

    /// Returns the calls by a post of `n`.
    private func calls(of center: Center, _ object: Center.Object? = nil) async throws -> [String] {
        try post(center, "n", object)
        try post(center, "end")
        return try await calls()
    }

    // CF-R2, CF-R3, CF-R4, CF-R8: Darling and other implementations remove all observers, or none.
    @Test("a removal by name and object removes exactly the matching registrations")
    func distributedCriteria() async throws {
        let center = distributed
        func equalText() -> Center.Object { .text(String(decoding: Array("A".utf8), as: UTF8.self)) }
        try add("end", to: center, observer: 99, name: "end")
        try add("nA", to: center, observer: 1, name: "n", object: .text("A"))
        try add("n", to: center, observer: 1, name: "n")
        try add("A", to: center, observer: 1, name: nil, object: .text("A"))
        try add("other", to: center, observer: 2, name: "n")
        func heard() async throws -> [String] {
            try await calls(of: center, equalText()).map { String($0.prefix { $0 != " " }) }
        }
        #expect(try await heard() == ["nA", "n", "A", "other"])
        center.remove(1, name: "n", object: equalText())
        #expect(try await heard() == ["n", "A", "other"], "a registration for any object stays")
        center.remove(1, name: nil, object: equalText())
        #expect(try await heard() == ["n", "other"])
        center.removeEvery(1)
        center.removeEvery(1)
        #expect(try await heard() == ["other"])
    }

    // CF-A8, CF-D7, CF-M6, CF-R6
    @Test("a Darwin center ignores objects and has no observers of any name")
    func darwinObjects() async throws {
        let center = darwin
        try add("end", to: center, observer: 99, name: "end")
        try add("any", to: center, observer: 1, name: nil)
        try add("n", to: center, observer: 1, name: "n", object: .text("hello-aaa"))
        #expect(try await calls(of: center, .text("hello")) == ["n n -"])
        center.remove(1, name: "n", object: .text("something else"))
        #expect(try await calls(of: center).isEmpty)
    }

    // CF-M5, CF-U3
    @Test("a local center compares addresses and hands on the posted objects")
    func local() throws {
        let center = Center.makeLocal()
        let contents = Locked<[UInt?]>([])
        try center.add(1, name: "n", object: .address(16), suspensionBehavior: .drop) { notification in
            if case .local(let content) = notification.content { contents.withLock { $0.append(content.userInfo) } }
        }
        try center.post("n", object: .address(16), content: .local(.init(name: 8, userInfo: 1)), options: [])
        try center.post("n", object: .address(32), content: .local(.init(name: 8, userInfo: 2)), options: [])
        try center.post("n", object: nil, content: .local(.init(name: 8, userInfo: 3)), options: .deliverImmediately)
        #expect(contents.withLock { $0 } == [1])
    }

    // CF-C1, CF-C2, CF-C3, CF-C4, CF-C7. On the main actor, so that the main queue delivers nothing in between.
    @MainActor
    @Test("callbacks of one center can use every other; a removed one is not called again")
    func reentrancy() async throws {
        let centers: [(String, Center)] = [("distributed", distributed), ("darwin", darwin), ("local", .makeLocal())]
        for (kind, center) in centers {
            try center.add(1, name: "n", object: nil, suspensionBehavior: .coalesce) { [log] _ in
                log.add("first")
                center.removeEvery(1)
                center.removeEvery(2)
                for (kind, other) in centers {
                    try? other.add(3, name: "n2", object: nil, suspensionBehavior: .coalesce) { _ in
                        log.add("added to \(kind)")
                    }
                    try? other.post("n2", object: nil, content: .none, options: [])
                    other.removeEvery(3)
                }
                try? center.post("end", object: nil, content: .none, options: [])
            }
            try add("second", to: center, observer: 2, name: "n")
            try add("end", to: center, observer: 99, name: "end")
            try post(center, "n")
            // Only the local center calls observers during the post. The other registrations were removed before any
            // call.
            #expect(try await calls() == ["first", "added to local"], "\(kind)")
            #expect(try await calls(of: center).isEmpty, "\(kind)")
            center.removeEvery(99)
        }
    }

    // CF-C5
    @Test("a deinitialiser that runs because of a removal may post on any center")
    func postFromDeinit() async throws {
        final class Poster: Sendable {
            let center: Center
            init(_ center: Center) { self.center = center }
            deinit { try? center.post("end", object: nil, content: .none, options: []) }
        }
        for center in [distributed, darwin, .makeLocal()] {
            try add("end", to: center, observer: 99, name: "end")
            weak var watched: Poster?
            do {
                let poster = Poster(center)
                watched = poster
                try center.add(1, name: "n", object: nil, suspensionBehavior: .coalesce) { _ in _ = poster.center }
            }
            #expect(watched != nil)
            center.removeEvery(1)
            #expect(try await calls().isEmpty)
            #expect(watched == nil)
        }
    }

    // CF-C6: four tasks with a hundred registrations and posts each, on each of three centers.
    @Test("concurrent adding, removing and posting loses nothing for other observers")
    func contention() async throws {
        for center in [distributed, darwin, .makeLocal()] {
            try add("steady", to: center, observer: 1, name: "n")
            try await withThrowingTaskGroup { group in
                for task in 0..<4 {
                    group.addTask { [log] in
                        for number in 0..<100 {
                            let observer = UInt(1000 + task * 100 + number)
                            try center.add(observer, name: "n", object: nil, suspensionBehavior: .hold) { _ in
                                log.add("called")
                            }
                            try center.post("n", object: nil, content: .none, options: [])
                            center.removeEvery(observer)
                        }
                    }
                }
                try await group.waitForAll()
            }
            // Posts made earlier arrive before this one.
            try add("end", to: center, observer: 99, name: "end")
            try post(center, "end")
            let steady = try await calls().count { $0 == "steady n -" }
            // The Darwin center may merge posts.
            #expect(center.kind == .darwin ? (1...400).contains(steady) : steady == 400)
            #expect(try await calls(of: center) == ["steady n -"])
            center.removeEvery(99)
            center.removeEvery(1)
        }
    }

    // CF-A11, CF-W10: for a center that was connected before, and for a center that was not.
    @Test(
        "an observer added without a working bus gets notifications once there is one",
        arguments: [true, false],
        [true, false]
    )
    func addedDuringAnOutage(wasConnected: Bool, hangsUp: Bool) async throws {
        let (names, dictionaries) = (DarwinNotifyCenter(bus: bus.bus), DistributedNotifyCenter(bus: bus.bus))
        let kinds = [
            ("darwin", Center.darwin(names), { names.statistics }),
            ("distributed", Center.distributed(dictionaries), { dictionaries.statistics }),
        ]
        if wasConnected { for (_, center, _) in kinds { try add("before", to: center, observer: 1, name: "n") } }
        bus.stop()
        let hanging = hangsUp ? try HangingUpBus(inPlaceOf: bus) : nil
        for (kind, center, statistics) in kinds {
            // Until the reading thread notices the loss, an observer of an already observed name is added without
            // contacting the bus. For a new connection, a failing post shows the loss.
            try await eventually("the loss is noticed") {
                wasConnected ? statistics().matchRulesNotInForce > 0 : (try? post(center, "other")) == nil
            }
            #expect(throws: DBusError.self) { try add(kind, to: center, observer: 2, name: "n") }
            #expect(throws: DBusError.self) { try add("removed", to: center, observer: 3, name: "n") }
            center.removeEvery(3)
        }
        hanging?.stop()
        try bus.start()
        var heard: Set<String> = []
        let poster = DistributedNotifyCenter(bus: bus.bus)
        let expected: Set<String> = wasConnected ? ["before", "darwin", "distributed"] : ["darwin", "distributed"]
        try await eventually("each is heard") {
            try? poster.post("n")
            try? DarwinNotifyCenter(bus: bus.bus).post("n")
            heard.formUnion(log.take().map { String($0.prefix { $0 != " " }) })
            return heard.isSuperset(of: expected)
        }
        #expect(heard == expected)
    }
}
