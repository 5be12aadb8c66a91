import simulate

/// The steps of a device in order, derived from a seed alone and therefore the same on each machine.
///
/// The time that each step takes is not determined, so the same schedule may interleave differently each time.
struct Schedule: Sendable, Hashable {
    static let users = ["ada", "grace"]
    static let appCount = 3
    /// The deeds of a hostile client, described in its source.
    static let deeds = [
        "passwords", "bodies", "reports", "names", "questions", "information", "newcomers", "never-reads", "squats",
        "half-open", "watches", "enforces", "watches-strangers", "never-reads-description", "prompts", "tokens",
        "standard",
    ]

    let seed: UInt64
    /// Whether the next sign-in waits until all apps have cleaned up.
    let isStrict: Bool
    let steps: [Step]

    /// - Parameter steps: some of the steps that the seed gives.
    init(seed: UInt64, isStrict: Bool, steps: [Step]) {
        self.seed = seed
        self.isStrict = isStrict
        self.steps = steps
    }

    init(seed: UInt64) {
        var generator = Generator(seed: seed)
        self.seed = seed
        isStrict = generator.random.chance(60)
        generator.mayBecomeStrict = !isStrict
        let steps = generator.steps(count: 12 + generator.random.below(20))
        // The adapter's steps use separate random numbers. So a seed gives the apps the same steps as before the
        // adapter was added.
        self.steps = Self.withAdapter(steps, SplitMix64(seed: seed &+ 0x5eed))
    }
}

extension Schedule: CustomStringConvertible {
    var description: String {
        let lines = steps.enumerated().map { "  \($0 + 1). \($1)" }
        return (["seed \(seed), \(isStrict ? "strict" : "advisory")"] + lines).joined(separator: "\n")
    }
}

/// Chooses steps that are plausible after the earlier ones: it starts dead programs, and prefers a sign-out when a user
/// is probably signed in. A wrong guess only leads to a refused request.
private struct Generator {
    private enum Life { case running, stopped, dead }

    private enum Kind: CaseIterable {
        case signIn, signOut, signOutAnyone, token, ask, work
        case kill, killCleaning, start, stop, resume
        case killBroker, startBroker, stopBroker, resumeBroker, restartBus, becomeStrict
        case attack, endAttack, fillDisk, freeDisk
        case pause, untilAnswered, untilCleaned, untilShown
    }

    var random: SplitMix64
    private var apps = [Life](repeating: .running, count: Schedule.appCount)
    private var broker = Life.running
    private var user: String?
    private var (isAttacked, isDiskFull) = (false, false)
    var mayBecomeStrict = false

    init(seed: UInt64) { random = SplitMix64(seed: seed) }

    mutating func steps(count: Int) -> [Step] {
        // An unused device would exercise nothing.
        var steps = step(.signIn)
        while steps.count < count {
            let kind = random.pick(weighted: Kind.allCases.map { (weight(of: $0), $0) })
            steps += step(kind)
        }
        return steps
    }

    private var isHealthy: Bool { broker == .running && !isDiskFull && apps.allSatisfy { $0 == .running } }

    private func weight(of kind: Kind) -> Int {
        let serves = broker == .running
        func exists(_ life: Life) -> Bool { apps.contains(life) }
        return switch kind {
        case .signIn: user == nil ? (serves && !isDiskFull ? 50 : 8) : 2
        case .signOut: user == nil ? 2 : (serves ? 16 : 4)
        case .signOutAnyone: user == nil ? 0 : 5
        case .token: serves ? 10 : 2
        case .ask: 4
        case .work: 4
        case .kill: exists(.running) || exists(.stopped) ? 10 : 0
        case .killCleaning: serves && !isDiskFull && exists(.running) && user != nil ? 8 : 0
        case .start: exists(.dead) ? 24 : 0
        case .stop: exists(.running) ? 8 : 0
        case .resume: exists(.stopped) ? 18 : 0
        case .killBroker: broker == .dead ? 0 : 6
        case .startBroker: broker == .dead ? 40 : 0
        case .stopBroker: serves ? 3 : 0
        case .resumeBroker: broker == .stopped ? 40 : 0
        case .restartBus: 1
        case .becomeStrict: mayBecomeStrict && serves && !isDiskFull ? 3 : 0
        case .attack: isAttacked ? 0 : 3
        case .endAttack: isAttacked ? 8 : 0
        case .fillDisk: isDiskFull ? 0 : (user == nil ? 2 : 5)
        case .freeDisk: isDiskFull ? 12 : 0
        case .pause: 16
        case .untilAnswered: serves ? 14 : 0
        case .untilCleaned: isHealthy ? 8 : 0
        case .untilShown: isHealthy && user != nil ? 12 : 0
        }
    }

    private mutating func step(_ kind: Kind) -> [Step] {
        let steps = choose(kind)
        for step in steps { note(step) }
        return steps
    }

    private mutating func choose(_ kind: Kind) -> [Step] {
        switch kind {
        case .signIn:
            let user = random.pick(Schedule.users)
            // A long patience is used only if the wait will be short.
            let patience = isHealthy ? 3000 : random.pick([0, 30, 150])
            let request = Step.signIn(app: app(.running), user: user, patience: patience)
            return isHealthy && random.chance(60) ? [request, .untilAnswered] : [request]
        case .signOut:
            let user = user ?? random.pick(Schedule.users)
            return [.signOut(app: app(.running), user: user)]
        case .signOutAnyone: return [.signOutAnyone]
        case .token:
            let user = random.chance(50) ? user : nil
            return [.token(app: app(.running), user: user ?? random.pick(Schedule.users))]
        case .ask: return [.ask(app: app(.running))]
        case .work: return [.work(app: app(.running))]
        case .kill: return [.kill(app: random.chance(80) ? app(.running) : app(.stopped))]
        case .killCleaning:
            let app = app(.running)
            // Another app signs out, if one runs.
            apps[app] = .dead
            let user = user ?? random.pick(Schedule.users)
            return [.signOut(app: self.app(.running), user: user), .untilAnswered, .killCleaning(app: app)]
        case .start: return [.start(app: app(.dead))]
        case .stop: return [.stop(app: app(.running))]
        case .resume: return [.resume(app: app(.stopped))]
        case .killBroker: return [.killBroker]
        case .startBroker: return [.startBroker]
        case .stopBroker: return [.stopBroker]
        case .resumeBroker: return [.resumeBroker]
        case .restartBus: return [.restartBus]
        case .becomeStrict: return [.becomeStrict]
        case .attack: return [.attack(random.pick(Schedule.deeds))]
        case .endAttack: return [.endAttack]
        case .fillDisk: return [.fillDisk]
        case .freeDisk: return [.freeDisk]
        case .pause: return [.pause(1 + random.below(random.chance(20) ? 60 : 15))]
        case .untilAnswered: return [.untilAnswered]
        case .untilCleaned: return [.untilCleaned]
        case .untilShown: return [.untilShown]
        }
    }

    private mutating func note(_ step: Step) {
        switch step {
        case .signIn(_, let user, _): self.user = user
        case .signOut, .signOutAnyone: user = nil
        case .kill(let app), .killCleaning(let app): apps[app] = .dead
        case .start(let app), .resume(let app): apps[app] = .running
        case .stop(let app): apps[app] = .stopped
        case .killBroker: broker = .dead
        case .startBroker, .resumeBroker: broker = .running
        case .stopBroker: broker = .stopped
        case .becomeStrict: mayBecomeStrict = false
        case .attack: isAttacked = true
        case .endAttack: isAttacked = false
        case .fillDisk: isDiskFull = true
        case .freeDisk: isDiskFull = false
        default: break
        }
    }

    /// An app in this condition, or any app if there is none.
    private mutating func app(_ life: Life) -> Int {
        let candidates = apps.indices.filter { apps[$0] == life }
        return random.pick(candidates.isEmpty ? Array(apps.indices) : candidates)
    }
}

extension Schedule {
    /// Adds steps of the adapter. The adapter is never dead for long, because a device with a strict policy waits for
    /// it.
    private static func withAdapter(_ steps: [Step], _ numbers: SplitMix64) -> [Step] {
        var random = numbers
        var deadFor: Int?
        return steps.flatMap { step -> [Step] in
            var before: [Step] = []
            if let dead = deadFor {
                if step.waitsForAdapter || dead > 3 || random.chance(30) {
                    before = [.startAdapter]
                    deadFor = nil
                } else {
                    deadFor = dead + 1
                }
            } else if !step.waitsForAdapter, random.chance(10) {
                before = [.killAdapter]
                deadFor = 0
            } else if random.chance(6) {
                before = [.killProgram]
            }
            return before + [step]
        }
    }

    func without(_ index: Int) -> Schedule {
        var rest = steps
        rest.remove(at: index)
        return Schedule(seed: seed, isStrict: isStrict, steps: rest)
    }

    /// Whether each wait can end: it needs no dead or stopped app, no dead or stopped broker, and no full disk.
    var isSensible: Bool {
        var halted: Set<Int> = []
        var (isServed, hasRoom, hasAdapter) = (true, true, true)
        for step in steps {
            switch step {
            case .kill(let app), .stop(let app): halted.insert(app)
            case .start(let app), .resume(let app): halted.remove(app)
            case .killAdapter: hasAdapter = false
            case .startAdapter: hasAdapter = true
            case .killBroker, .stopBroker: isServed = false
            case .startBroker, .resumeBroker: isServed = true
            case .fillDisk: hasRoom = false
            case .freeDisk: hasRoom = true
            case .killCleaning(let app):
                guard isServed, hasRoom, !halted.contains(app) else { return false }
                halted.insert(app)
            case .untilAnswered: guard isServed else { return false }
            case .becomeStrict: guard isServed, hasRoom else { return false }
            case .untilCleaned, .untilShown:
                guard isServed, hasRoom, hasAdapter, halted.isEmpty else { return false }
            case .killProgram: break
            case .signIn, .signOut, .signOutAnyone, .token, .ask, .work, .restartBus, .attack, .endAttack, .pause: break
            }
        }
        return true
    }
}

extension Step {
    fileprivate var waitsForAdapter: Bool { self == .untilCleaned || self == .untilShown }
}
