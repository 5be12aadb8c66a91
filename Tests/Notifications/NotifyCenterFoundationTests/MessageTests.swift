import DBus
import Foundation
import NotifyCenter
import NotifyCenterFoundation
import NotifyCenterTestKit
import Testing

@Suite("Typed messages", .timeLimit(.minutes(10)))
struct MessageTests {
    private struct Everything: DistributedNotificationCenter.AsyncMessage, Equatable {
        static let name = Notification.Name("everything")
        enum Kind: String, Codable { case first, second }
        struct Part: Codable, Equatable { var number: Int8 }
        var text = "a\0é"
        var large = UInt64.max
        var small = Int64.min
        var double = 1.0
        var infinity = Double.infinity
        var float: Float = 0.5
        var flag = true
        var date = Date(timeIntervalSinceReferenceDate: 0.1)
        var data = Data([0, 255])
        var kind = Kind.second
        var parts = [Part(number: -1), Part(number: 2)]
        var byName = ["x": 1, "": 2]
        var byNumber = [3: "three"]
        var absent: String?
        var present: String? = ""
        var gaps: [Int?] = [1, nil]
        var address = URL(string: "https://example.org/a?b")
    }

    private struct Ping: DistributedNotificationCenter.AsyncMessage, Equatable {
        static let name = Notification.Name("ping")
        var number: Int
    }

    private struct Screen: DistributedNotificationCenter.MainActorMessage {
        static let name = Notification.Name("screen")
        var number: Int
    }

    private struct Note: DistributedNotificationCenter.AsyncMessage, Equatable {
        static let name = Notification.Name("note")
        var text = ""
        var list: [String] = []
        var byName: [String: String] = [:]
        var optional: String?
        var gaps: [String?] = []
    }

    private struct Empty: DistributedNotificationCenter.AsyncMessage {}

    private enum Single: String, DistributedNotificationCenter.AsyncMessage { case value }

    private let bus: PrivateBus
    private let underlying: DistributedNotifyCenter
    private let center: DistributedNotificationCenter

    init() throws {
        bus = try PrivateBus()
        underlying = DistributedNotifyCenter(bus: bus.bus)
        center = DistributedNotificationCenter(underlying)
    }

    // CF-X10, CF-U7
    @Test("a message has its type's name unless declared, and arrives with all its values")
    func everything() async throws {
        #expect([Named.name, Ping.name].map(\.rawValue) == ["NotificationsTests.Named", "ping"])
        var iterator = try center.messages(for: Everything.self).makeAsyncIterator()
        try center.post(Everything())
        #expect(await iterator.next() == Everything())
    }

    // CF-M1, CF-P2
    @Test("subjects match like objects, and plain observers get the object and userInfo")
    func subjects() async throws {
        let (log, plain) = (Log(), center.notifications(named: Ping.name))
        let tokens = [
            try center.addObserver(for: Ping.self) { log.add("any \($0.number)") },
            try center.addObserver(of: "A", for: Ping.self) { log.add("A \($0.number)") },
        ]
        for (number, subject) in [(1, nil), (2, "A"), (3, "B")] as [(Int, String?)] {
            try center.post(Ping(number: number), subject: subject)
        }
        try await eventually("all arrive") { log.all.count == 4 }
        #expect(Set(log.all) == ["any 1", "any 2", "A 2", "any 3"])
        var iterator = plain.makeAsyncIterator()
        _ = await iterator.next()
        let second = await iterator.next()
        #expect(second?.object as? String == "A" && second?.userInfo?["number"] as? Int == 2)
        withExtendedLifetime(tokens) {}
    }

    // CF-D4
    @Test("asynchronous observers are called for one message at a time, in order")
    func asyncOrder() async throws {
        let log = Log()
        let token = try center.addObserver(for: Ping.self) { message in
            log.add("begin \(message.number)")
            await Task.yield()
            log.add("end \(message.number)")
        }
        for number in 0..<50 { try center.post(Ping(number: number)) }
        try await eventually("all are handled") { log.all.count == 100 }
        #expect(log.all == (0..<50).flatMap { ["begin \($0)", "end \($0)"] })
        withExtendedLifetime(token) {}
    }

    // CF-D2, CF-D4
    @MainActor @Test("observers of main-actor messages run on the main actor, in order")
    func mainActor() async throws {
        var numbers: [Int] = []
        let token = try center.addObserver(for: Screen.self) { message in
            MainActor.assertIsolated()
            numbers.append(message.number)
        }
        for number in 0..<50 { try center.post(Screen(number: number)) }
        try await eventually("all arrive") { numbers.count == 50 }
        #expect(numbers == Array(0..<50))
        withExtendedLifetime(token) {}
    }

    // CF-R7
    @Test("an observer that was removed, or whose token was freed, gets nothing more")
    func tokens() async throws {
        let log = Log()
        var token: DistributedNotificationCenter.ObservationToken? = try center.addObserver(for: Ping.self) {
            log.add("dropped token \($0.number)")
        }
        let removed = try center.addObserver(for: Ping.self) { log.add("removed token \($0.number)") }
        let screen = try center.addObserver(for: Screen.self) { log.add("screen \($0.number)") }
        let kept = try center.addObserver(for: Ping.self) { log.add("kept \($0.number)") }
        #expect(token != nil)
        #expect(underlying.statistics.observers == 4)
        token = nil
        center.removeObserver(removed)
        center.removeObserver(removed)
        center.removeObserver(screen as Any)
        #expect(underlying.statistics.observers == 1)
        try center.post(Screen(number: 1))
        try center.post(Ping(number: 1))
        try await eventually("the kept one is called") { !log.all.isEmpty }
        #expect(log.all == ["kept 1"])
        withExtendedLifetime(kept) {}
    }

    // CF-R7
    @Test("removing an asynchronous observer drops its pending messages")
    func removalWhileBusy() async throws {
        let log = Log()
        let (gate, open) = AsyncStream<Void>.makeStream()
        let token = try center.addObserver(for: Ping.self) { message in
            log.add("begin \(message.number)")
            for await _ in gate { break }
            log.add("end \(message.number)")
        }
        for number in 0..<3 { try center.post(Ping(number: number)) }
        let last = try center.addObserver(for: Ping.self) { if $0.number == 3 { log.add("arrived") } }
        try center.post(Ping(number: 3))
        try await eventually("all have arrived, and the first is being handled") {
            Set(log.all) == ["begin 0", "arrived"]
        }
        center.removeObserver(token)
        open.yield()
        try await eventually("the first is done") { log.all.contains("end 0") }
        try center.post(Ping(number: 3))
        try await eventually("the other one goes on") { log.all.filter { $0 == "arrived" }.count == 2 }
        #expect(!log.all.contains("begin 1"))
        withExtendedLifetime(last) {}
    }

    @Test("a sequence keeps the newest ten and ends with its task or its last copy")
    func sequence() async throws {
        var messages: DistributedNotificationCenter.Messages<Ping>? = try center.messages(for: Ping.self)
        for number in 0..<15 { try center.post(Ping(number: number)) }
        try await eventually("five have given way") { messages?.droppedCount == 5 }
        var iterator = messages?.makeAsyncIterator()
        var taken: [Int?] = []
        for _ in 5..<15 { taken.append(await iterator?.next()?.number) }
        #expect(taken == Array(5..<15))
        messages = nil
        iterator = nil
        #expect(underlying.statistics.observers == 0)
        let endless = try center.messages(for: Ping.self, bufferSize: 0)
        let task = Task {
            var count = 0
            for await _ in endless { count += 1 }
            return count
        }
        task.cancel()
        #expect(await task.value == 0)
    }

    // CF-U8
    @Test("a notification that is not a message of the type is ignored and counted")
    func undecodable() async throws {
        let plain = try await underlying.notifications(named: "everything")
        try center.post(Everything())
        var plainIterator = plain.makeAsyncIterator()
        let valid = try #require(await plainIterator.next()?.userInfo)
        var iterator = try center.messages(for: Everything.self, bufferSize: 1000).makeAsyncIterator()
        let hostile: [PropertyListValue] = [
            .double(.nan), .double(1e300), .double(-.infinity),
            .date(PropertyListDate(secondsSinceReferenceDate: 1e300)),
            .date(PropertyListDate(secondsSinceReferenceDate: -1e18)), .unsigned(.max), .integer(.min), "", "$null",
            .data([]), [], [:], ["CF$UID": 1], [[[["x"]]]], true,
        ]
        try underlying.post("everything")
        try underlying.post("everything", userInfo: [:])
        for key in valid.keys {
            for value in hostile { try underlying.post("everything", userInfo: valid.merging([key: value]) { $1 }) }
        }
        try center.post(Everything(text: "last"))
        var decoded: UInt64 = 0
        while let message = await iterator.next(), message.text != "last" { decoded += 1 }
        #expect(decoded + center.undecodableMessageCount == UInt64(2 + valid.count * hostile.count))
        #expect(center.undecodableMessageCount > 100)
    }

    // CF-U8
    @Test("observers ignore and count undecodable payloads, and no payload counts as empty")
    func undecodableForObservers() async throws {
        let empty = Log()
        let tokens = [
            try center.addObserver(for: Screen.self) { _ in Issue.record("no screen came") },
            try center.addObserver(for: Ping.self) { _ in Issue.record("no ping came") },
            try center.addObserver(for: Empty.self) { _ in empty.add("empty") },
        ]
        try underlying.post("screen", userInfo: ["number": "one"])
        try underlying.post("ping", userInfo: ["number": 1.5])
        try center.post(Empty())
        try underlying.post(NotificationName(Empty.name))
        try await eventually("all are counted") { center.undecodableMessageCount == 2 && empty.all.count == 2 }
        withExtendedLifetime(tokens) {}
    }

    // CF-U7
    @Test("a message is refused with unnamed values, over a limit, or with the text of nil")
    func refusals() async throws {
        #expect(throws: EncodingError.self) { try center.post(Single.value) }
        var large = Everything()
        large.data = Data(count: 2 << 20)
        #expect(throws: DBusError.self) { try center.post(large) }
        let busless = DistributedNotificationCenter(bus: .address("unix:path=/nowhere/bus"))
        #expect(throws: DBusError.self) { try busless.post(Ping(number: 1)) }
        #expect(throws: DBusError.self) { try busless.addObserver(for: Ping.self) { _ in } }
        #expect(throws: DBusError.self) { try busless.messages(for: Ping.self) }
        var iterator = try center.messages(for: Note.self).makeAsyncIterator()
        let notesWithNil = [
            Note(text: "$null"), Note(list: ["a", "$null"]), Note(byName: ["a": "$null"]), Note(byName: ["$null": ""]),
        ]
        for note in notesWithNil { #expect(throws: EncodingError.self) { try center.post(note) } }
        try center.post(Note(text: "null"))
        #expect(await iterator.next() == Note(text: "null"))
        #expect(underlying.statistics.received == 1)
        // If the type has nil, the text arrives as nil.
        try center.post(Note(optional: "$null", gaps: ["a", "$null"]))
        #expect(await iterator.next() == Note(optional: nil, gaps: ["a", nil]))
    }
}

struct Named: DistributedNotificationCenter.AsyncMessage {}
