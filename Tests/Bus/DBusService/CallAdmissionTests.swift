import Basics
import Glibc
import NotifyCenterTestKit
import Synchronization
import Testing

import var CDBus.DBUS_MESSAGE_TYPE_METHOD_RETURN
import struct CDBus.DBusMessageIter
import func CDBus.dbus_message_iter_append_basic
import func CDBus.dbus_message_iter_init_append
import func CDBus.dbus_message_new

@testable import DBus
@testable import DBusService

@Suite("Incoming calls are admitted or refused before any work for them")
struct CallAdmissionTests {
    private static let limitsExceeded = "org.freedesktop.DBus.Error.LimitsExceeded"

    private let served: ServedBus
    /// The arguments that handlers got.
    private let handled = Noted<[DBusValue]>()
    /// The calls of `Wait`, which a test answers.
    private let waiting = Noted<CallReply>()

    init() throws { served = try ServedBus() }

    /// Returns the name of the error of a call; `nil` if the call succeeded.
    private func refusal(_ message: consuming DBusMessage, of caller: DBusConnection? = nil) async -> String? {
        await (caller ?? served.client).refusal(of: message)?.name
    }

    private func take(_ count: Int = 0, by member: String = "Take") throws -> DBusMessage {
        try served.call(member, [.array(Array(repeating: .variant(.byte(1)), count: count), of: "v")])
    }

    /// Serves an object. `Wait` notes its calls; `Take` and `TakeHere` note their arguments.
    private func serve(limits: CallLimits = CallLimits(), admit: CallAdmission.Decision? = nil) throws {
        let values = [DBusInterface.Argument("values", "av")]
        let note: @Sendable (IncomingCall) async throws -> [DBusValue] = { [handled] call in
            handled.note(call.arguments)
            return []
        }
        let methods: [DBusInterface.Method] = [
            .init("Wait", inOrder: { [waiting] _, reply in waiting.note(reply) }),
            .init("Take", in: values, handler: note),
            .init("TakeLittle", in: values, maximumBodyBytes: 1000, handler: note),
            .init(
                "TakeHere",
                in: values,
                inOrder: { [handled] call, reply in
                    handled.note(call.arguments)
                    reply.send(.success([]))
                }
            ),
            .init("Forget", inOrder: { _, _ in }),
        ]
        try served.serve(methods, properties: [.init("Version", "u") { .uint32(7) }], limits: limits, admit: admit)
    }

    // MARK: Limits

    @Test("a budget limits calls and bytes per sender and in total, except for idle senders")
    func budget() throws {
        var limits = CallLimits()
        (limits.callsOfSender, limits.bytesOfSender, limits.calls, limits.bytes) = (2, 100, 3, 150)
        var budget = CallBudget(limits)
        func isTaken(_ bytes: Int, _ sender: String) -> Bool { (try? budget.take(bytes, of: sender)) != nil }
        #expect(isTaken(10, "a") && isTaken(10, "a") && !isTaken(10, "a"), "two calls of a sender")
        #expect(!isTaken(101, "b") && isTaken(100, "b"), "100 bytes of a sender")
        #expect(!isTaken(0, "b"), "three calls in total")
        budget.giveBack(10, of: "a")
        #expect(!isTaken(41, "a") && isTaken(40, "a"), "150 bytes in total")
        #expect(!isTaken(.max, "d"))
        for (bytes, sender) in [(10, "a"), (100, "b"), (40, "a")] { budget.giveBack(bytes, of: sender) }
        #expect(budget.isUnused)
        var shares = CallLimits()
        (shares.callsOfSender, shares.calls, shares.bytes) = (10, 20, 20 << 10)
        var shared = CallBudget(shares)
        func isAdmitted(_ bytes: Int, _ sender: String) -> Bool { (try? shared.take(bytes, of: sender)) != nil }
        let flood = ["a", "b"].map { sender in (0..<20).count { _ in isAdmitted(1 << 10, sender) } }
        #expect(flood == [10, 10])
        let honest = (0..<20).count { _ in isAdmitted(100, "c") }
        #expect(honest == 20 / 3)
        #expect(!isAdmitted(1, "a"))
        #expect(!isAdmitted((5 << 10) + 1, "d") && isAdmitted(5 << 10, "d"))
        #expect((0..<100).allSatisfy { isAdmitted(10, "new \($0)") })
    }

    @Test("a caller over its limit is refused by name, without effect on other callers")
    func callsOfSender() async throws {
        let limit = 3
        var limits = CallLimits()
        limits.callsOfSender = limit
        try serve(limits: limits)
        let answers = Noted<Result<[DBusValue], DBusError>>()
        for _ in 0..<limit { served.client.call(try served.call("Wait"), timeout: .seconds(600)) { answers.note($0) } }
        #expect(await refusal(try take()) == Self.limitsExceeded)
        func readAll() throws -> DBusMessage {
            try .methodCall(
                destination: try #require(served.server.uniqueName),
                path: "/object",
                interface: "org.freedesktop.DBus.Properties",
                member: "GetAll",
                arguments: [.string("")]
            )
        }
        #expect(await refusal(try readAll()) == Self.limitsExceeded)
        let other = try DBusConnection.open(served.bus.bus)
        #expect(await refusal(try take(), of: other) == nil)
        #expect(await refusal(try readAll(), of: other) == nil)
        for reply in waiting.all { reply.send(.success([])) }
        try await eventually("all calls have a response") { answers.all.count == limit }
        #expect(await refusal(try take()) == nil)
        #expect(try isUnused())
    }

    private func isUnused() throws -> Bool {
        let object = try #require(served.server.objectServer["/object"])
        return object.budget.withLock { $0.isUnused }
    }

    // MARK: Sizes

    @Test(
        "a body over its method's limit is refused before the handler sees it",
        arguments: ["Take", "TakeLittle", "TakeHere"]
    )
    func largeBody(member: String) async throws {
        let asked = Noted<CallHeader>()
        try serve { header in
            asked.note(header)
            return .take()
        }
        #expect(await refusal(try take(member == "TakeLittle" ? 300 : 300_000, by: member)) == Self.limitsExceeded)
        #expect(handled.all.isEmpty && asked.all.isEmpty)
        #expect(await refusal(try take(1, by: member)) == nil)
        #expect(handled.all == [[.array([.variant(.byte(1))], of: "v")]])
    }

    @Test("the refusal of a call with a long path does not repeat the path")
    func largePath() async throws {
        try serve()
        let calls = [("org.example.Object", "Wait"), ("org.freedesktop.DBus.Introspectable", "Introspect")]
        for (interface, member) in calls {
            let message = try DBusMessage.methodCall(
                destination: try #require(served.server.uniqueName),
                path: "/" + String(repeating: "a", count: 15_000),
                interface: interface,
                member: member
            )
            let refused = await served.client.refusal(of: message)
            #expect(refused?.name == "org.freedesktop.DBus.Error.UnknownObject")
            #expect(refused?.message.utf8.count ?? .max < 200)
        }
    }

    // MARK: The service's own decision

    @Test("a service decides by the header and learns of the end of each admitted call")
    func decision() async throws {
        let asked = Noted<CallHeader>()
        let ended = Noted<String>()
        try serve { header in
            asked.note(header)
            if header.member == "Wait" { return .refuse(.init(name: "org.example.Error.Full", message: "later")) }
            return .take { ended.note(header.member) }
        }
        #expect(await refusal(try served.call("Wait")) == "org.example.Error.Full")
        #expect(ended.all.isEmpty)
        #expect(await refusal(try take(1)) == nil)
        // The end is reported before the response is sent.
        #expect(ended.all == ["Take"])
        #expect(await refusal(try take(1, by: "TakeHere")) == nil)
        #expect(ended.all == ["Take", "TakeHere"])
        // An unanswered call ends when its reply object is freed.
        served.client.call(try served.call("Forget"), timeout: .milliseconds(1)) { _ in }
        try await eventually("the forgotten call ends") { ended.all == ["Take", "TakeHere", "Forget"] }
        let headers = asked.all
        #expect(headers.map(\.member) == ["Wait", "Take", "TakeHere", "Forget"])
        let sender = served.client.uniqueName
        #expect(headers.allSatisfy { $0.sender == sender })
        #expect((8...64).contains(headers[1].bytes - headers[0].bytes))
        // Calls with a wrong signature or an unknown method are refused without asking the service.
        #expect(await refusal(try served.call("Take")) == "org.freedesktop.DBus.Error.InvalidArgs")
        #expect(await refusal(try served.call("Nothing")) == "org.freedesktop.DBus.Error.UnknownMethod")
        #expect(asked.all.count == 4)
        #expect(try isUnused())
    }

    // MARK: Descriptors

    /// Adds the write end of a pipe to the message.
    ///
    /// - Returns: the read end, which reports end of file when the last copy of the write end is closed.
    private func addDescriptor(to message: borrowing DBusMessage) -> CInt {
        var ends: [CInt] = [-1, -1]
        #expect(pipe(&ends) == 0)
        var iterator = DBusMessageIter()
        dbus_message_iter_init_append(message.pointer, &iterator)
        // libdbus appends a copy.
        #expect(dbus_message_iter_append_basic(&iterator, CInt(UInt8(ascii: "h")), &ends[1]) != 0)
        close(ends[1])
        return ends[0]
    }

    private func isAtEnd(_ descriptor: CInt) -> Bool {
        var entry = pollfd(fd: descriptor, events: CShort(POLLIN), revents: 0)
        return poll(&entry, 1, 0) == 1 && entry.revents & CShort(POLLHUP) != 0
    }

    @Test("a response's descriptor is read and closed after use; other messages have none")
    func descriptorInAnAnswer() async throws {
        let answer = DBusMessage(adopting: try #require(dbus_message_new(DBUS_MESSAGE_TYPE_METHOD_RETURN)))
        let end = addDescriptor(to: answer)
        let values = Locked(try answer.arguments())
        guard case .descriptor(let descriptor)? = values.withLock({ $0.first }) else {
            Issue.record("no descriptor")
            return
        }
        #expect(fcntl(descriptor.number, F_GETFD) == FD_CLOEXEC)
        #expect(throws: DBusError.self) {
            _ = try DBusMessage.signal(path: "/a", interface: "a.b", member: "C", arguments: [.descriptor(descriptor)])
        }
        _ = consume answer
        #expect(!isAtEnd(end))
        values.withLock { $0 = [] }
        _ = consume descriptor
        // A process that another test is starting may briefly hold a copy.
        try await eventually("the descriptor is closed") { isAtEnd(end) }
        let signal = try DBusMessage.signal(path: "/a", interface: "a.b", member: "C")
        let other = addDescriptor(to: signal)
        #expect(throws: DBusError.self) { _ = try signal.arguments() }
        for end in [end, other] { close(end) }
    }

    @Test("a call with descriptors is refused, and the descriptors are closed")
    func callWithDescriptors() async throws {
        try serve()
        let message = try served.call("Wait")
        let end = addDescriptor(to: message)
        defer { close(end) }
        #expect(await refusal(message) == "org.freedesktop.DBus.Error.InvalidArgs")
        try await eventually("the descriptor is closed") { isAtEnd(end) }
    }
}
