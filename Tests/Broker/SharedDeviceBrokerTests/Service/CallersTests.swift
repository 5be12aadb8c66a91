import Foundation
import Glibc
import NotifyCenterTestKit
import Synchronization
import Testing

@testable import Basics
@testable import BrokerCore
@testable import DBus
@testable import DBusService
@testable import SharedDeviceBroker

@Suite("Identifying the caller of each connection by bus and kernel")
struct CallersTests {
    private let bus: PrivateBus
    private let connection: DBusConnection
    private let told = Shared<[String]>([])
    /// The connections of ``peer()``, which last as long as the test.
    private let peers = Shared<[DBusConnection]>([])
    /// The number of processes that ``callers(stuck:patience:)`` has begun to examine.
    private let looks = Shared(0)
    /// Blocks the first of these examinations until it is signalled.
    private let gate = DispatchSemaphore(value: 0)
    /// For each call of ``makeCalls(_:of:to:)``, whether it was admitted and its caller identified.
    private let answers = Shared<[Bool]>([])
    /// The functions that end the admitted calls.
    private let ends = Shared<[@Sendable () -> Void]>([])

    init() throws {
        bus = try PrivateBus(.init(matchRulesPerConnection: 8))
        connection = try DBusConnection.open(bus.bus)
    }

    /// Makes callers whose examination of each of the first `count` processes waits for ``gate``.
    private func callers(stuck count: Int = 0, patience: Duration = .seconds(60)) async throws -> Callers {
        let callers = Callers(
            connection: connection,
            looks: ProcessLooks(patience: patience),
            look: { [looks, gate] peer in
                let number = looks.withLock { looks -> Int in
                    looks += 1
                    return looks
                }
                if number <= count { gate.wait() }
                return ProcessView.credentials(ofProcess: peer.processID, user: peer.userID, label: peer.securityLabel)
            },
            arrived: { [told] caller in told.withLock { $0.append("+\(caller.connection)") } },
            left: { [told] connection in told.withLock { $0.append("-\(connection)") } }
        )
        try await callers.start()
        return callers
    }

    /// The bus name with the bus identifier, which distinguishes the names of all buses.
    private func global(_ name: String) throws -> String { try #require(connection.busIdentifier) + name }

    /// A second connection of this process, and its name on the bus.
    private func peer() async throws -> (connection: DBusConnection, name: String) {
        let peer = try DBusConnection.open(bus.bus)
        try await peer.flush()
        peers.withLock { $0.append(peer) }
        return (peer, try #require(peer.uniqueName))
    }

    private func identify(_ callers: Callers, _ name: String) async -> Result<Caller, Refusal> {
        await withCheckedContinuation { continuation in callers.identify(name) { continuation.resume(returning: $0) } }
    }

    private func call(_ sender: String, bytes: Int = 100) -> CallHeader {
        CallHeader(sender: sender, member: "M", bytes: bytes)
    }

    /// Makes calls on the reading thread, as real calls are made.
    private func makeCalls(_ count: Int, of name: String, to callers: Callers) {
        let header = call(name)
        connection.perform { [answers, ends] in
            for _ in 0..<count {
                guard case .take(let ended?) = callers.admit(header) else {
                    answers.withLock { $0.append(false) }
                    continue
                }
                ends.withLock { $0.append(ended) }
                callers.identify(header.sender) { answer in
                    answers.withLock { $0.append((try? answer.get()) != nil) }
                }
            }
        }
    }

    private func isTaken(_ admission: CallAdmission) -> Bool {
        if case .take = admission { true } else { false }
    }

    @Test("a caller is identified once, before its first response, and anew after an outage")
    func identity() async throws {
        let callers = try await callers()
        let peer = try await peer()
        let program = try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")
        for _ in 0..<3 {
            let caller = try await identify(callers, peer.name).get()
            #expect(told.withLock { $0 } == ["+\(caller.connection)"])
            let seen = (caller.connection, caller.user, caller.process, caller.credentials.executable)
            #expect(try seen == (global(peer.name), geteuid(), UInt32(getpid()), program) && caller.isAdministrator)
        }
        // Calls that arrive before the bus responds all get a response.
        let other = try await self.peer()
        let names = await withTaskGroup(of: String?.self) { group in
            for _ in 0..<20 { group.addTask { try? await identify(callers, other.name).get().connection } }
            return await group.reduce(into: []) { $0.append($1) }
        }
        #expect(names == Array(repeating: try global(other.name), count: 20))
        let identified = try [peer, other].map { "+\(try global($0.name))" }
        #expect(told.withLock { $0 } == identified)
        callers.forgetAll()
        _ = try await identify(callers, peer.name).get()
        #expect(told.withLock { $0 } == identified + identified.prefix(1))
    }

    // The root of a process may be a file system that never responds.
    @Test("a process that cannot be examined delays no other caller, and may leave")
    func stuckProcess() async throws {
        let callers = try await callers(stuck: 2, patience: .seconds(600))
        let (stuck, leaving, other) = (try await peer(), try await peer(), try await peer())
        let late = Task { await identify(callers, stuck.name) }
        let gone = Task { await identify(callers, leaving.name) }
        try await eventually("the processes are examined") { looks.withLock { $0 } == 2 }
        let caller = try await identify(callers, other.name).get()
        #expect(caller.credentials.executable != ProcessView.unseen)
        #expect(told.withLock { $0 } == ["+\(caller.connection)"], "the other ones still wait")
        leaving.connection.close()
        let refusal = await gone.value
        #expect(throws: Refusal.self) { try refusal.get() }
        for _ in 0..<2 { gate.signal() }
        let arrived = try await late.value.get()
        // The examination of the connection that has left ends meanwhile, without an event.
        let last = try await peer()
        let next = try await identify(callers, last.name).get()
        #expect(told.withLock { $0 } == [caller, arrived, next].map { "+\($0.connection)" })
    }

    @Test("a process that cannot be examined is identified by its user only")
    func unseenProcess() async throws {
        defer { gate.signal() }
        let callers = try await callers(stuck: 1, patience: .milliseconds(50))
        let unseen = try await identify(callers, peer().name).get()
        #expect(unseen.user == geteuid() && unseen.credentials.executable == ProcessView.unseen)
    }

    /// Like a call without a response: reports its end when it is released.
    private final class Held: Sendable {
        private let ended: @Sendable () -> Void

        init(_ ended: @escaping @Sendable () -> Void) { self.ended = ended }

        deinit { ended() }
    }

    @Test("calls that are queued when the bus is lost end with it and block nothing")
    func lostWhileCallsWait() async throws {
        let callers = try await callers()
        let peer = try await peer()
        _ = try await identify(callers, peer.name).get()
        let (header, ends) = (call(peer.name), Shared(0))
        @Sendable func wait() {
            guard case .take(let ended?) = callers.admit(header) else { return }
            let held = Held {
                ended()
                ends.withLock { $0 += 1 }
            }
            callers.identify(header.sender) { _ in withExtendedLifetime(held) {} }
        }
        // Runs as one block on the reading thread, so that no queued call proceeds in between.
        connection.perform {
            for _ in 0..<3 { wait() }
            callers.forgetAll()
        }
        try await eventually("all calls have ended") { ends.withLock { $0 } == 3 }
    }

    @Test("the end of a connection is reported once, and only if it had called")
    func end() async throws {
        let callers = try await callers()
        let (first, second, silent) = (try await peer(), try await peer(), try await peer())
        for name in [first.name, second.name] { _ = try await identify(callers, name).get() }
        silent.connection.close()
        first.connection.close()
        second.connection.close()
        try await eventually("both ends are reported") { told.withLock { $0.count } >= 4 }
        // The order in which the bus notices the two ends is undefined.
        let heard = told.withLock { $0 }
        let (one, two) = (try global(first.name), try global(second.name))
        #expect(Array(heard.prefix(2)) == ["+\(one)", "+\(two)"])
        #expect(heard.dropFirst(2).sorted() == ["-\(one)", "-\(two)"].sorted())
    }

    @Test("a connection that ends before the bus is asked about it is forgotten")
    func goneAtOnce() async throws {
        let callers = try await callers()
        for _ in 0..<50 {
            let peer = try await peer()
            async let answer = identify(callers, peer.name)
            peer.connection.close()
            _ = await answer
        }
        try await eventually("no caller is left") {
            let lines = told.withLock { $0 }
            return lines.count { $0.hasPrefix("+") } == lines.count { $0.hasPrefix("-") }
        }
        let gone = await identify(callers, ":1.99999")
        #expect(throws: Refusal.requestAbandoned) { try gone.get() }
    }

    @Test("the end of a connection known from an earlier run is reported")
    func followed() async throws {
        let callers = try await callers()
        let (lasting, ending, ended) = (try await peer(), try await peer(), try await peer())
        ended.connection.close()
        let names = try [lasting, ending, ended].map { try global($0.name) }
        try await eventually("the connection is gone") { try await connection.owner(of: ended.name) == nil }
        let gone = try await callers.follow(Set(names + ["another-bus\(lasting.name)"]))
        #expect(gone == [names[2], "another-bus\(lasting.name)"])
        ending.connection.close()
        try await eventually("the end is reported") { told.withLock { $0 } == ["-\(names[1])"] }
    }

    // S6
    @Test("forty callers need at most eight match rules")
    func manyCallers() async throws {
        let callers = try await callers()
        for _ in 0..<40 { _ = try await identify(callers, peer().name).get() }
        #expect(told.withLock { $0.count } == 40)
    }

    // Another client may subscribe to the broker's broadcasts and leave so many unread that dbus-daemon stops reading
    // from the broker.
    @Test(
        "a broker from which the bus stops reading reconnects, with the reason",
        .enabled(if: PrivateBus.Daemon.chosen == .daemon, "dbus-broker ends the connection that does not read")
    )
    func heldUp() async throws {
        var options = PrivateBus.Options()
        options.bytesPerConnection = 256 << 10
        let small = try PrivateBus(options)
        let own = try DBusConnection.open(small.bus)
        let reasons = Shared<[String]>([])
        let callers = Callers(
            connection: own,
            busPatience: .seconds(1),
            arrived: { _ in },
            left: { _ in },
            leaves: { reason in reasons.withLock { $0.append(reason) } }
        )
        try await callers.start()
        let deaf = try DBusConnection.open(small.bus)
        let isOver = Atomic(false)
        let ends = DispatchSemaphore(value: 0)
        let hearing = deaf.onSignal { if $0.member == "News", !isOver.load(ordering: .relaxed) { ends.wait() } }
        defer {
            isOver.store(true, ordering: .relaxed)
            ends.signal()
        }
        let lease = try await deaf.addMatch(MatchRule(interface: "org.example.News"))
        let text = String(repeating: "x", count: 4096)
        // The signals are sent on the reading thread, which does not wait for the bus. The announcement is made there
        // too, because a request that is sent before the signals would still be answered.
        own.perform {
            for _ in 0..<300 {
                try? own.send(
                    .signal(path: "/", interface: "org.example.News", member: "News", arguments: [.string(text)])
                )
            }
            callers.announced()
        }
        try await eventually("the broker leaves the bus") { reasons.withLock { $0.count } == 1 }
        #expect(reasons.withLock { $0[0] }.contains("the bus has read nothing for 1 s"))
        let peer = try DBusConnection.open(small.bus)
        try await peer.flush()
        let name = try #require(peer.uniqueName)
        try await eventually("it returns") { if case .success = await identify(callers, name) { true } else { false } }
        withExtendedLifetime((hearing, lease)) {}
    }

    // MARK: Admission

    // S4
    @Test("calls in flight are limited per user, and before its identification to a little")
    func budget() async throws {
        let callers = try await callers()
        #expect(isTaken(callers.admit(call(":1.77"))) && !isTaken(callers.admit(call(":1.77", bytes: 1 << 20))))
        let (first, second) = (try await peer(), try await peer())
        for name in [first.name, second.name] { _ = try await identify(callers, name).get() }
        var ends: [@Sendable () -> Void] = []
        while case .take(let ended?) = callers.admit(call(ends.count.isMultiple(of: 2) ? first.name : second.name)) {
            ends.append(ended)
            try #require(ends.count <= Callers.limitOfUser.calls)
        }
        #expect(ends.count == Callers.limitOfUser.calls)
        #expect(!isTaken(callers.admit(call(second.name))))
        ends[0]()
        #expect(isTaken(callers.admit(call(second.name))) && !isTaken(callers.admit(call(second.name))))
    }

    @Test("calls before the user is known count for the user afterwards")
    func budgetOfFirstCalls() async throws {
        let callers = try await callers()
        for _ in 0..<40 { makeCalls(10, of: try await peer().name, to: callers) }
        try await eventually("all calls are refused or identified") { answers.withLock { $0.count } == 400 }
        #expect(answers.withLock { $0.count { $0 } } == Callers.limitOfUser.calls)
        for ended in ends.withLock({ $0 }) { ended() }
        let last = try await peer()
        _ = try await identify(callers, last.name).get()
        let taken = (0...Callers.limitOfUser.calls).map { _ in isTaken(callers.admit(call(last.name))) }
        #expect(taken == Array(repeating: true, count: Callers.limitOfUser.calls) + [false])
    }

    @Test("calls of connections whose processes cannot be examined count for the user")
    func budgetOfStuckProcesses() async throws {
        let callers = try await callers(stuck: 20, patience: .seconds(600))
        for _ in 0..<20 { makeCalls(16, of: try await peer().name, to: callers) }
        try await eventually("only the user's limit of calls is in flight") {
            answers.withLock { $0 } == Array(repeating: false, count: 320 - Callers.limitOfUser.calls)
        }
        for ended in ends.withLock({ $0 }) { ended() }
        for _ in 0..<20 { gate.signal() }
    }
}
