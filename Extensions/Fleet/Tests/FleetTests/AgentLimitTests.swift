import Basics
import Fleet
import Testing

/// Guarantees under failing clocks, disks and files: the time limit without contact, and which sessions count as over.
@Suite("The agent when clocks, disks and files fail")
struct AgentLimitTests {
    private static let policy = AgentState.Policy(contactTimeout: 3600)

    private static func memory(_ text: String) throws -> AgentMemory {
        try AgentMemory(JSONValue(parsing: Array(text.utf8), limits: JSONLimits(size: 4096)))
    }

    /// An agent after a reboot, with this memory on its disk and this session open.
    private static func restarted(
        _ memory: AgentMemory,
        at now: Moment,
        policy: AgentState.Policy = policy
    ) throws -> AgentState { AgentState(policy: policy, memory: try Self.memory(memory.json.text), now: now) }

    private static var signedIn: AgentMemory {
        var memory = AgentMemory()
        memory.policy = policy
        memory.contact = .init(begin: .at(5000))
        memory.session = .init(epoch: 7, since: .init(begin: .at(4000)))
        return memory
    }

    /// When the agent signs out session 7, in seconds since the boot and with a tick each minute, and its memory then.
    private static func end(
        _ memory: AgentMemory,
        boot: String,
        from start: Double = 20,
        until end: Double = 10_000,
        wall: (Double) -> Double
    ) throws -> (at: Double?, memory: AgentMemory) {
        var memory = memory
        var agent = try restarted(memory, at: .at(start, wall: wall(start), boot: boot))
        var events: [AgentEvent] = [.device(.signedIn(7))]
        for uptime in stride(from: start, through: end, by: 10) {
            for event in events {
                for effect in agent.handle(event, now: .at(uptime, wall: wall(uptime), boot: boot)) {
                    if case .store(let stored) = effect { memory = stored }
                    if case .signOut(7, _) = effect { return (uptime, memory) }
                }
            }
            events = [.tick]
        }
        return (nil, memory)
    }

    @Test("FL-7: after a reboot with a wrong clock a device signs out after five minutes")
    func wrongClock() throws {
        let end = try Self.end(Self.signedIn, boot: "b") { $0 - 1000 }
        #expect(end.at == 300)
        // A limit that is shorter than five minutes stays in force.
        let now = Moment.at(60, wall: 0, boot: "b")
        var agent = try Self.restarted(Self.signedIn, at: now, policy: .init(contactTimeout: 60))
        let effects = agent.handle(.device(.signedIn(7)), now: now)
        let text = "no contact since the machine was started, with a wrong clock"
        #expect(effects.contains(.signOut(session: 7, reason: text)))
        // A corrected clock or a heartbeat settles the doubt, and the full limit counts from the last contact.
        let right = try Self.end(Self.signedIn, boot: "b") { $0 < 200 ? 0 : 6000 + $0 }
        #expect(right.at == 3600)
        var heard = try Self.restarted(Self.signedIn, at: .at(20, wall: 0, boot: "b"))
        _ = heard.handle(.device(.signedIn(7)), now: .at(20, wall: 0, boot: "b"))
        _ = heard.handle(.heartbeat(highest: 0), now: .at(250, wall: 0, boot: "b"))
        #expect(!heard.handle(.tick, now: .at(3849, wall: 0, boot: "b")).signsOut)
        #expect(heard.handle(.tick, now: .at(3850, wall: 0, boot: "b")).signsOut)
    }

    @Test("FL-7: the uptime counts over any number of reboots with a wrong clock")
    func startedAgainAndAgain() throws {
        // The clock begins at the same time after each boot, later than the contact, so that it does not look wrong.
        var (memory, ran, starts) = (Self.signedIn, 0.0, 0)
        var isOver = false
        while !isOver, starts < 200 {
            let run = try Self.end(memory, boot: "run \(starts)", until: 240) { 6001 + $0 }
            (memory, starts, isOver) = (run.memory, starts + 1, run.at != nil)
            ran += run.at ?? 240
        }
        // Each run loses less than one step.
        #expect(isOver && ran < 3600 * 240 / 180, "\(starts) starts, \(ran) s")
    }

    @Test("FL-7: a clock corrected at runtime neither shortens nor extends a session")
    func clockIsStepped() throws {
        for step in [-50_400.0, 50_400] {
            var agent = AgentTests.agent(.signedIn(7), policy: Self.policy)
            agent.handle(.heartbeat(highest: 0), at: 10)
            #expect(!agent.handle(.tick, now: .at(3609, wall: 4609 + step)).signsOut)
            let effects = agent.handle(.tick, now: .at(3610, wall: 4610 + step))
            #expect(effects.contains(.signOut(session: 7, reason: "no contact for 3600 s")))
        }
    }

    @Test("FL-7: an agent's file keeps memory and last limit, unless a number is invalid")
    func files() throws {
        var memory = AgentMemory()
        memory.seen = .init(all: 3, own: 4)
        memory.intents = [.own: .init(order: 5, session: 6)]
        memory.result = .init(order: 4, outcome: .nobody, ended: 8)
        memory.sequenceLimit = 1 << 50
        memory.contact = .init(begin: .at(1.5))
        memory.session = .init(epoch: 9, since: .init(begin: .at(2)))
        memory.policy = .init(contactTimeout: 90, requiresContact: true)
        (memory.ended, memory.damage) = (6, "it was torn")
        #expect(try Self.memory(memory.json.text) == memory)
        func read(_ members: String) throws -> AgentMemory {
            try Self.memory(#"{"seenAll": 0, "seenOwn": 0, "sequenceLimit": 1, "intents": {}, \#(members)}"#)
        }
        #expect(try read(#""policy": [60, true]"#).policy == .init(contactTimeout: 60, requiresContact: true))
        #expect(try read(#""policy": []"#).policy == .init())
        #expect(try read(#""contact": [1, 2, "a", 0, 3, "a"]"#).contact?.counted == 0)
        let policies = ["[-1, true]", "[59, true]", "[1e30, true]", "[31536001, false]", "[60, 1]", "[60]"]
        for members in policies.map({ "\"policy\": \($0)" }) + [
            #""contact": [1, 2, "a", -1e9, 3, "a"]"#, #""session": [7, [1, 2, "a", -1, 3, "a"]]"#,
        ] { #expect(throws: FleetRefusal.self, "\(members)") { try read(members) } }
        // The limit of the last readable configuration is kept.
        let policy = AgentState.Policy(contactTimeout: 600, requiresContact: true)
        var agent = AgentState(policy: policy, memory: AgentMemory(), now: .at(0))
        let stored = agent.handle(.tick, now: .at(0)).compactMap { effect -> AgentMemory? in
            if case .store(let memory) = effect { memory } else { nil }
        }
        #expect(stored.last?.policy == policy)
        var again = AgentState(policy: policy, memory: stored.last ?? AgentMemory(), now: .at(0))
        #expect(again.handle(.tick, now: .at(0)).isEmpty)
    }

    // MARK: Orders

    @Test("FL-3: an order that arrives during an older one is carried out as well")
    func newerOrder() throws {
        for scope in OrderScope.allCases {
            var agent = AgentTests.agent(.signedIn(7))
            #expect(agent.handle(.desired(scope, .init(number: 3, reason: "")), .device(.signedIn(7)), at: 1).signsOut)
            agent.handle(.desired(scope, .init(number: 4, reason: "")), at: 2)
            agent.handle(.signOutAnswered(.ended), at: 3)
            let report = try #require(agent.handle(.device(.nobody(8)), now: .at(4)).report)
            #expect(report.seen[scope] == 4 && report.result?.order == 4 && report.result?.ended == 8)
        }
    }

    @Test("FL-13: a sign-out is done once it is on the disk; a reopened session is ended")
    func unstored() throws {
        for answer in [AgentEvent.SignOutAnswer.endedUnstored, .overAlready] {
            var agent = AgentTests.agent(.signedIn(7))
            agent.handle(.desired(.all, .init(number: 3, reason: "")), .device(.signedIn(7)), at: 1)
            var effects = agent.handle(.signOutAnswered(answer), now: .at(2))
            var report: DeviceReport?
            for second in 2..<8 {
                effects += agent.handle(.device(.nobody(8, isStored: false)), now: .at(Double(second)))
                report = effects.report ?? report
                #expect(report?.seen.all ?? 0 == 0)
                effects = agent.handle(.tick, now: .at(Double(second + 1)))
                #expect(effects.contains(.askDevice), "it asks until the disk has it")
            }
            #expect(report?.problems.first?.contains("disk does not have the sign-out") == true)
            let last = try #require(agent.handle(.device(.nobody(8)), now: .at(10)).report)
            #expect(last.result == .init(order: 3, outcome: .signedOut, ended: 8) && last.problems.isEmpty)
        }
        // A power cut reopens a session that was over.
        var memory = AgentMemory.having(seen: 3)
        memory.result = .init(order: 3, outcome: .signedOut, ended: 7)
        var agent = AgentTests.agent(.nobody(8), memory: memory)
        let effects = agent.handle(.device(.signedIn(7)), now: .at(2))
        #expect(effects.contains(.signOut(session: 7, reason: "session 7 is open again, which was over")))
        var other = AgentTests.agent(.nobody(8), memory: memory)
        #expect(!other.handle(.device(.signedIn(8)), now: .at(2)).signsOut)
        // The same for a session that ended for lack of contact.
        var lost = AgentTests.agent(.signedIn(7), policy: .init(contactTimeout: 60))
        #expect(lost.handle(.tick, now: .at(60)).signsOut)
        lost.handle(.signOutAnswered(.endedUnstored), at: 61)
        #expect(lost.handle(.device(.signedIn(7)), now: .at(62)).signsOut)
    }

    // MARK: Reports

    @Test("FL-11: truncated app names stay distinct and short, and the longest report fits")
    func longNames() throws {
        let names = (0..<DeviceReport.mostDebts).map { index in
            DeviceReport.name(String(repeating: "\"\u{1F512}", count: 190) + "\(index)")
        }
        #expect(Set(names).count == names.count && names.allSatisfy { $0.utf8.count <= 200 })
        let short = "org.example.notes (/usr/bin/notes, uid 7)"
        #expect(DeviceReport.name(short) == short)
        // Invisible characters take more room once they are printable.
        for count in [1, 160, 300] {
            let name = DeviceReport.name(String(repeating: "\u{7F}", count: count) + String(repeating: "a", count: 100))
            #expect(name.utf8.count <= 160 && DeviceReport.name(name) == name, "\(count)")
        }
        let owing = names.map { DeviceReport.Round.Debt(app: $0, progress: "told") }
        let rounds = (0..<UInt64(DeviceReport.mostRounds)).map { session in
            DeviceReport.Round(session: session + 1, finished: 1, owing: session == 3 ? owing : [])
        }
        var agent = AgentTests.agent(.nobody(8))
        let view = DeviceView(mode: "shared", epoch: 30, isSignedIn: false, rounds: rounds)
        agent.handle(.foreign(String(repeating: "\u{1F512}\"", count: 100)), at: 2)
        let report = try #require(agent.handle(.device(view), now: .at(4)).report)
        #expect(report.rounds.reduce(0) { $0 + $1.owes } == 40, "apps without a name count")
        let bytes = FleetEvent(.reported(report), source: "/fleet/clinic/ward-1", identifier: "1", time: 0).bytes
        #expect(try FleetEvent(parsing: bytes).message == .reported(report))
    }
}
