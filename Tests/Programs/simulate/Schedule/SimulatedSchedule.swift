import BrokerCore
import SharedDevice

/// An action of a user, an administrator or an attacker, or a fault.
enum Action: Hashable {
    case signIn(Int, person: Int, isRight: Bool, patience: Int)
    case signOut(Int)
    case token(Int, refresh: Bool)
    case work(Int)
    case cancel(Int)
    case again(Int)
    case startApp(Int)
    case killApp(Int)
    case dropConnection(Int)
    case stepFails(Int)
    case hang(Int)
    case startEnforcer, killEnforcer
    case startBroker, killBroker
    case killBrokerAfter(Int)
    case cutPower
    case cutPowerAfter(Int)
    case loseBus, restoreBus
    case disk(World.DiskMode)
    case provider(World.ProviderMode)
    /// The provider revokes all sessions of a user.
    case revoke(Int)
    case killService
    case configure(Setting.File)
    case pass(Int)
    case sleep(Int)
    case setClock(Int)
    /// A process misses the next broadcast of a sign-out.
    case loseBroadcast(Int)
    case atSeat(World.SeatDeed)
    case atScreen(World.ScreenDeed)
    case waive(Int)
    case signOutAnyone
    case stranger(Stranger)
    case settle

    /// A request of a hostile program.
    enum Stranger: Hashable, CaseIterable {
        case account, signsIn, guesses, signsOut, signsAnyoneOut, reports, waives, claimsAnother, floods, leaves
        case enforces
    }
}

/// An action, and how many of its consequences happen before the next one.
struct ScheduledStep: Hashable, CustomStringConvertible {
    var action: Action
    var progress: Int
    /// Seeds the order of these consequences, so that it stays the same when another step is removed from the schedule.
    var salt: UInt64

    var description: String { "\(action), then \(progress) steps (\(String(salt, radix: 36)))" }
}

/// The life of a device, derived from a seed alone.
package struct SimulatedSchedule: Hashable, Sendable {
    package let seed: UInt64
    var file: Setting.File
    var hasManyUsers: Bool
    var steps: [ScheduledStep]

    package init(seed: UInt64) {
        var random = SplitMix64(seed: seed)
        self.seed = seed
        let configuration = random.pick(weighted: [
            (5, 0), (3, 1), (3, 2), (2, 3), (4, Setting.enforced), (5, Setting.organisation),
            (3, Setting.organisation + 1), (4, Setting.shortGrace), (3, Setting.seat),
        ])
        file = random.below(25) == 0 ? random.pick([.broken, .missing]) : .valid(configuration)
        hasManyUsers = random.chance(25)
        // Not drawn: this keeps the other schedules.
        let locks = seed % 11 == 9
        if locks { file = .valid(Setting.lock) }
        var maker = StepMaker(random: random, isAtSeat: file == .valid(Setting.seat), locks: locks)
        steps = maker.steps(count: 20 + random.below(40))
    }
}

/// Chooses steps that are plausible after the earlier ones. A wrong guess has no effect.
private struct StepMaker {
    /// Makes an action for this app, and notes what the action changes.
    private typealias Maker = (inout StepMaker, Int) -> Action

    var random: SplitMix64
    private var isBrokerUp = true
    private var isBusUp = true
    private var isDiskWell = true
    private var isProviderWell = true
    private var isEnforcerUp = true
    private var mayBeSignedIn = false

    /// Whether the first configuration uses the login at the seat as the sign-in.
    private let isAtSeat: Bool
    /// Whether the first configuration locks after inactivity.
    private let locks: Bool
    private var isLogindUp = true

    init(random: SplitMix64, isAtSeat: Bool, locks: Bool) {
        self.random = random
        self.locks = locks
        self.isAtSeat = isAtSeat
    }

    mutating func steps(count: Int) -> [ScheduledStep] {
        var steps: [ScheduledStep] = []
        // An unused device would exercise nothing.
        if isAtSeat { steps.append(step(.atSeat(.logIn(1000)))) }
        if locks { steps.append(step(.atScreen(.start))) }
        steps.append(step(.signIn(random.below(4), person: random.below(2), isRight: true, patience: 0)))
        if random.chance(80) { steps.append(step(.settle)) }
        while steps.count < count { steps.append(step(action())) }
        return steps
    }

    private mutating func step(_ action: Action) -> ScheduledStep {
        let progress = random.chance(20) ? 0 : random.below(random.chance(30) ? 40 : 8)
        return ScheduledStep(action: action, progress: progress, salt: random.next())
    }

    private mutating func action() -> Action {
        let app = random.below(Setting.apps.count)
        let makers = makers()
        let make = random.pick(weighted: makers)
        return make(&self, app)
    }

    private func makers() -> [(weight: Int, choice: Maker)] {
        var makers: [(weight: Int, choice: Maker)] = []
        func add(_ weight: Int, _ make: @escaping Maker) { makers.append((weight, make)) }
        add(mayBeSignedIn ? 4 : 14) { $0.signIn($1) }
        add(mayBeSignedIn ? 14 : 3) { $0.signOut(.signOut($1)) }
        add(6) { .token($1, refresh: $0.random.chance(50)) }
        add(8) { .work($1) }
        add(1) { .cancel($1) }
        add(3) { .again($1) }
        add(6) { .startApp($1) }
        add(6) { .killApp($1) }
        add(3) { .dropConnection($1) }
        add(2) { .stepFails($1) }
        add(2) { .hang($1) }
        add(isEnforcerUp ? 2 : 6) { maker, _ in maker.toggle(\.isEnforcerUp) ? .startEnforcer : .killEnforcer }
        add(isBrokerUp ? 3 : 14) { maker, _ in maker.toggle(\.isBrokerUp) ? .startBroker : .killBroker }
        add(isBrokerUp ? 4 : 0) { maker, _ in maker.endBroker(.killBrokerAfter(maker.random.below(12))) }
        add(1) { maker, _ in maker.endBroker(.cutPower) }
        add(isBrokerUp ? 1 : 0) { maker, _ in maker.endBroker(.cutPowerAfter(maker.random.below(12))) }
        add(3) { maker, _ in .sleep(maker.random.pick([61, 590, 3700, 8 * 3600])) }
        add(2) { .loseBroadcast($1) }
        add(isAtSeat ? 24 : 0) { maker, _ in .atSeat(maker.seatDeed()) }
        add(locks ? 30 : 0) { maker, _ in .atScreen(maker.screenDeed()) }
        add(isBusUp ? 1 : 12) { maker, _ in maker.toggle(\.isBusUp) ? .restoreBus : .loseBus }
        add(isDiskWell ? 2 : 8) { maker, _ in
            .disk(maker.toggle(\.isDiskWell) ? .works : maker.random.chance(60) ? .isFull : .standsStill)
        }
        add(isProviderWell ? 2 : 8) { maker, _ in
            .provider(maker.toggle(\.isProviderWell) ? .answers : maker.random.chance(50) ? .fails : .hangs)
        }
        add(3) { maker, _ in maker.signOut(.revoke(maker.random.below(2))) }
        add(2) { _, _ in .killService }
        add(3) { maker, _ in .configure(maker.file()) }
        add(7) { maker, _ in .pass(maker.random.pick([1, 1, 3, 31, 61, 950])) }
        add(1) { maker, _ in .setClock(maker.random.pick([-86400, -600, 600, 86400, 40 * 86400])) }
        add(3) { maker, _ in maker.random.chance(50) ? .waive(maker.random.below(3)) : .signOutAnyone }
        add(5) { maker, _ in .stranger(maker.random.pick(Action.Stranger.allCases)) }
        add(9) { _, _ in .settle }
        return makers
    }

    private mutating func toggle(_ fact: WritableKeyPath<StepMaker, Bool>) -> Bool {
        self[keyPath: fact].toggle()
        return self[keyPath: fact]
    }

    private mutating func signIn(_ app: Int) -> Action {
        mayBeSignedIn = true
        let person = random.pick(weighted: [(6, 0), (5, 1), (1, 2)])
        return .signIn(app, person: person, isRight: !random.chance(10), patience: random.chance(40) ? 20 : 0)
    }

    private mutating func signOut(_ action: Action) -> Action {
        mayBeSignedIn = false
        return action
    }

    private mutating func endBroker(_ action: Action) -> Action {
        isBrokerUp = false
        return action
    }

    private mutating func file() -> Setting.File {
        random.pick(weighted: [
            (3, .valid(0)), (2, .valid(1)), (2, .valid(2)), (2, .valid(3)), (1, .valid(4)),
            (3, .valid(Setting.enforced)), (2, .valid(Setting.organisation)), (1, .valid(Setting.shortGrace)),
            (isAtSeat ? 4 : 0, .valid(Setting.seat)), (locks ? 4 : 0, .valid(Setting.lock)), (6, .broken),
            (1, .missing),
        ])
    }

    private mutating func seatDeed() -> World.SeatDeed {
        let user = random.pick([1000, 1000, 1001] as [UInt32])
        if !isLogindUp, random.chance(60) {
            isLogindUp = true
            return .logindComes
        }
        let deed = random.pick(weighted: [
            (5, World.SeatDeed.logIn(user)), (3, .logOut), (2, .lock), (3, .unlock), (2, .switchTo(user)),
            (1, .logindGoes),
        ])
        if deed == .logindGoes { isLogindUp = false }
        return deed
    }

    private mutating func screenDeed() -> World.ScreenDeed {
        let person = random.pick(weighted: [(6, 0), (5, 1), (1, 2)])
        return random.pick(weighted: [
            (6, World.ScreenDeed.start), (1, .kill), (1, .hang), (1, .lag), (3, .idles),
            (9, .types(person: person, isRight: !random.chance(20), afterIdling: random.chance(70))),
        ])
    }
}
