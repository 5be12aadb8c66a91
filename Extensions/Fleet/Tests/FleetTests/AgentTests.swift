import Fleet
import Testing

@Suite("The state machine of the agent")
struct AgentTests {
    /// A connected agent whose broker has reported this view, if any.
    static func agent(
        _ view: DeviceView? = nil,
        memory: AgentMemory = AgentMemory(),
        policy: AgentState.Policy = .init(),
        now: Moment = .at(0)
    ) -> AgentState {
        var agent = AgentState(policy: policy, memory: memory, now: now)
        _ = agent.handle(.connected, now: now)
        if let view { _ = agent.handle(.device(view), now: now) }
        return agent
    }

    @Test("a response to an outdated request is ignored, and the request is repeated")
    func lateAnswer() {
        var questions = QuestionOrder()
        func take(_ number: UInt64, _ revision: UInt64?) -> [UInt64?] {
            let answer = questions.take(number, revision: revision)
            return [answer.counts ? 1 : 0, answer.known]
        }
        let following = questions.latest
        #expect(take(following, 7) == [1, 7])
        questions.begin()
        #expect(take(following, 8) == [0, nil])
        // A restarted broker has lower revisions.
        let revisions: [UInt64?] = [8, 8, 6, 6, 9, nil, 1]
        let expected: [[UInt64?]] = [[1, 8], [1, 8], [0, nil], [1, 6], [1, 9], [1, nil], [1, 1]]
        let taken = revisions.map { take(questions.latest, $0) }
        #expect(taken == expected)
    }

    @Test("FL-3, FL-4: an order ends the then open session, whose number is stored first")
    func signsOut() throws {
        // The session began while there was no connection.
        var agent = Self.agent(.nobody(6))
        agent.handle(.disconnected, at: 0)
        agent.handle(.device(.signedIn(7)), .connected, .tick, at: 10)
        #expect(agent.handle(.desired(.all, .init(number: 3, reason: "closing")), now: .at(900)) == [.askDevice])
        let effects = agent.handle(.device(.signedIn(7)), now: .at(900))
        #expect(effects.map(\.word).prefix(2) == ["store", "signOut"])
        guard case .store(let memory) = effects.first else { return }
        #expect(memory.intents == [.all: .init(order: 3, session: 7)])
        #expect(effects.contains(.signOut(session: 7, reason: "fleet order 3: closing")))
        #expect(agent.handle(.signOutAnswered(.ended), now: .at(901)).map(\.word) == ["store", "note", "askDevice"])
        let report = try #require(agent.handle(.device(.nobody(8, owing: ["notes"])), now: .at(903)).report)
        #expect(report.seen.all == 3 && report.result == .init(order: 3, outcome: .signedOut, ended: 7))
        #expect(report.rounds.first?.owing.map(\.app) == ["notes"])
    }

    @Test("FL-3: repeated, old and late orders, also after a crash, end no later session")
    func repeated() {
        var agent = Self.agent(.nobody(8), memory: .having(seen: 5))
        for number: UInt64 in [5, 4] {
            let effects = agent.handle(.desired(.all, .init(number: number, reason: "")), now: .at(5))
            #expect(effects.allSatisfy { $0.word == "publish" }, "\(effects)")
        }
        agent.handle(.desired(.own, .init(number: 6, session: 9, reason: "")), at: 10)
        let effects = agent.handle(.device(.signedIn(11)), now: .at(10))
        #expect(!effects.signsOut)
        #expect(effects.report?.result == .init(order: 6, outcome: .sessionOver, ended: 10))
        // The agent crashed during the sign-out of session 7.
        var memory = AgentMemory.having(seen: 2)
        memory.intents[.all] = .init(order: 3, session: 7)
        var crashed = Self.agent(memory: memory)
        let later = crashed.handle(.desired(.all, .init(number: 3, reason: "")), .device(.signedIn(9)), at: 0)
        #expect(!later.signsOut)
        #expect(later.report?.result == .init(order: 3, outcome: .signedOut, ended: 8))
    }

    @Test("FL-5: a rejected report is repeated after a minute or on the next connection")
    func refusedReport() {
        var agent = Self.agent(.nobody(8))
        #expect(agent.handle(.refused, now: .at(5)).isEmpty && agent.wake(now: .at(5)) == 65)
        agent.handle(.refused, at: 20)
        #expect(agent.handle(.tick, now: .at(64)).isEmpty)
        #expect(agent.handle(.tick, now: .at(65)).map(\.word) == ["publishPresence", "publish"])
        #expect(agent.handle(.tick, now: .at(200)).isEmpty)
        agent.handle(.refused, at: 200)
        agent.handle(.disconnected, at: 210)
        #expect(agent.handle(.tick, now: .at(270)).isEmpty)
        agent.handle(.connected, at: 280)
        #expect(agent.handle(.tick, now: .at(300)).isEmpty)
    }

    @Test("FL-5: each change is reported once, at most one a second and one per connection")
    func reports() throws {
        var agent = Self.agent(.nobody(3))
        #expect(agent.handle(.device(.signedIn(4)), now: .at(0.1)).report == nil)
        #expect(agent.handle(.device(.nobody(5)), now: .at(0.2)).report == nil)
        #expect(agent.wake(now: .at(0.2)) == 1)
        let newest = agent.handle(.tick, now: .at(1)).report
        #expect(newest?.session == nil && newest?.sequence ?? 0 > 0)
        #expect(agent.handle(.tick, now: .at(9)).isEmpty)
        func owing(_ progress: String) -> DeviceView {
            let round = DeviceReport.Round(session: 6, finished: 0, owing: [.init(app: "notes", progress: progress)])
            return DeviceView(mode: "shared", epoch: 7, isSignedIn: false, rounds: [round])
        }
        let views: [DeviceView] = [
            .signedIn(6), owing("owed"), owing("begun"), .nobody(7),
            DeviceView(mode: "personal", epoch: 7, isSignedIn: false, rounds: []),
        ]
        for (view, time) in zip(views, stride(from: 10.0, to: 100, by: 10)) {
            let report = try #require(agent.handle(.device(view), now: .at(time)).report)
            #expect(report.mode == view.mode && report.rounds == view.rounds)
            #expect(report.session == (view.isSignedIn ? view.epoch : nil))
            #expect(agent.handle(.device(view), now: .at(time + 5)).report == nil)
        }
        agent.handle(.disconnected, at: 100)
        let effects = agent.handle(.connected, now: .at(110))
        // The report's number follows the clock and is stored first.
        #expect(effects.map(\.word) == ["subscribe", "publishPresence", "store", "publish"])
    }

    @Test("FL-6: a heartbeat above the seen order makes the device subscribe, with a limit")
    func heartbeat() {
        var agent = Self.agent(.nobody(3), memory: .having(seen: 5))
        #expect(!agent.handle(.heartbeat(highest: 5), now: .at(20)).contains(.subscribe))
        #expect(agent.handle(.heartbeat(highest: 6), now: .at(30)).contains(.subscribe))
        #expect(!agent.handle(.heartbeat(highest: 6), now: .at(31)).contains(.subscribe))
        #expect(agent.handle(.heartbeat(highest: 6), now: .at(41)).contains(.subscribe))
    }

    @Test("FL-7: without contact the device signs out by the clock that ran longer")
    func contact() {
        let policy = AgentState.Policy(contactTimeout: 600)
        var agent = Self.agent(.signedIn(7), policy: policy)
        agent.handle(.heartbeat(highest: 0), at: 0)
        #expect(agent.wake(now: .at(1)) == 600)
        #expect(!agent.handle(.tick, now: .at(599)).signsOut)
        #expect(agent.handle(.tick, now: .at(600)).contains(.signOut(session: 7, reason: "no contact for 600 s")))
        // After a reboot only the wall clock tells the time.
        var memory = AgentMemory()
        memory.contact = .init(begin: .at(0))
        memory.session = .init(epoch: 7, since: .init(begin: .at(0)))
        let later = Moment.at(5, wall: 1700, boot: "b")
        var other = AgentState(policy: policy, memory: memory, now: later)
        #expect(other.handle(.device(.signedIn(7)), now: later).signsOut)
        // With requiresContact a new session that has no contact ends at once.
        var strict = Self.agent(.nobody(7), policy: .init(contactTimeout: 600, requiresContact: true))
        #expect(strict.handle(.device(.signedIn(8)), now: .at(1)).signsOut)
        strict.handle(.signOutAnswered(.ended), .device(.nobody(9)), at: 1)
        strict.handle(.heartbeat(highest: 0), at: 2)
        #expect(!strict.handle(.device(.signedIn(10)), now: .at(3)).signsOut)
    }

    @Test("a broker's refusal is reported and retried, and the order is not seen")
    func refused() {
        var agent = Self.agent(.signedIn(7))
        agent.handle(.desired(.all, .init(number: 3, reason: "")), .device(.signedIn(7)), at: 1)
        let report = agent.handle(.signOutAnswered(.refused("not an operator")), now: .at(2)).report
        #expect(report?.seen.all == 0 && report?.result?.outcome == .refused)
        #expect(report?.problems == ["not an operator"])
        #expect(agent.handle(.tick, now: .at(8)).signsOut)
    }

    @Test("FL-11: a missing broker and invalid messages are reported, without other effects")
    func problems() throws {
        var agent = Self.agent(.nobody(8), memory: .having(seen: 5))
        let away = try #require(agent.handle(.deviceUnknown("no broker"), now: .at(2)).report)
        #expect(away.mode == DeviceReport.unknownMode && away.problems == ["no broker"])
        var other = Self.agent(.signedIn(7))
        other.handle(.foreign("it is no JSON"), at: 2)
        let report = try #require(other.handle(.foreign("it is no JSON"), now: .at(4)).report)
        let problem = "2 messages were not understood; the last message: it is no JSON"
        #expect(report.problems == [problem] && report.session == 7)
    }

    @Test("FL-15: a new device with a slow clock is heard once its clock is right")
    func correctedClock() throws {
        var first = Self.agent(.nobody(1))
        let before = try #require(first.handle(.foreign("x"), now: .at(5)).report)
        var controller = try ControllerState.listing("a")
        controller.hear(before)
        // A device of the same name without the old file, a second later, whose clock starts at 0 and is corrected
        // before the agent connects.
        var second = AgentState(policy: .init(), memory: AgentMemory(), now: .at(1, wall: 1))
        _ = second.handle(.device(.nobody(2)), now: .at(1, wall: 1))
        let after = try #require(second.handle(.connected, now: .at(20, wall: 1001)).report)
        controller.hear(after)
        #expect(controller.devices["a"]?.report == after && controller.oldCount == 0)
        // The clock is corrected while the agent is connected.
        var third = Self.agent(now: .at(1, wall: 1))
        let early = try #require(third.handle(.device(.nobody(3)), now: .at(1, wall: 1)).report)
        controller.hear(early)
        #expect(controller.devices["a"]?.report == after && controller.oldCount == 1)
        let last = try #require(third.handle(.clockSynchronised(true), now: .at(9, wall: 6000)).report)
        controller.hear(last)
        #expect(controller.devices["a"]?.report == last)
        // A clock that is set back does not lower the numbers.
        _ = third.handle(.disconnected, now: .at(10, wall: 10))
        let again = try #require(third.handle(.connected, now: .at(20, wall: 20)).report)
        #expect(again.sequence > last.sequence)
    }
}

// MARK: - Values for tests

extension Moment {
    /// A moment of a machine whose wall clock was 1000 at boot.
    static func at(_ uptime: Double, wall: Double? = nil, boot: String = "a") -> Moment {
        Moment(uptime: uptime, wall: wall ?? uptime + 1000, boot: boot)
    }
}

extension AgentState {
    /// Handles these events at this uptime, and returns the effects of the last one.
    @discardableResult
    mutating func handle(_ events: AgentEvent..., at uptime: Double) -> [AgentEffect] {
        var effects: [AgentEffect] = []
        for event in events { effects = handle(event, now: .at(uptime)) }
        return effects
    }
}

extension DeviceView {
    static func signedIn(_ epoch: UInt64) -> DeviceView {
        DeviceView(mode: "shared", epoch: epoch, isSignedIn: true, rounds: [])
    }

    /// A device without a session, where these apps have a pending cleanup of the last session.
    static func nobody(_ epoch: UInt64, owing apps: [String] = [], isStored: Bool = true) -> DeviceView {
        let owing = apps.map { DeviceReport.Round.Debt(app: $0, progress: "owed") }
        let rounds = owing.isEmpty ? [] : [DeviceReport.Round(session: epoch - 1, finished: 0, owing: owing)]
        return DeviceView(mode: "shared", epoch: epoch, isSignedIn: false, rounds: rounds, isStored: isStored)
    }
}

extension AgentMemory {
    static func having(seen all: UInt64) -> AgentMemory {
        var memory = AgentMemory()
        memory.seen.all = all
        memory.sequenceLimit = 1 << 40
        return memory
    }
}

extension AgentEffect {
    var word: String { "\(self)".prefix { $0 != "(" }.split(separator: ".").last.map(String.init) ?? "" }
}

extension [AgentEffect] {
    var signsOut: Bool { contains { $0.word == "signOut" } }
    var report: DeviceReport? {
        for case .publish(let report) in self { return report }
        return nil
    }
}
