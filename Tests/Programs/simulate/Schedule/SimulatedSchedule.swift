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
    private enum Kind {
        case signIn, signOut, token, work, cancel, again
        case startApp, killApp, drop, stepFails, hang, enforcer
        case broker, killBrokerAfter, power, powerAfter, bus, disk, provider, revoke, service
        case configure, pass, sleep, clock, loseBroadcast, seat, screen, administrator, stranger, settle
    }

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

    private mutating func kind() -> Kind {
        random.pick(weighted: [
            (mayBeSignedIn ? 4 : 14, .signIn), (mayBeSignedIn ? 14 : 3, .signOut), (6, .token), (8, .work),
            (1, .cancel),
            (3, .again), (6, .startApp), (6, .killApp), (3, .drop), (2, .stepFails),
            (2, .hang), (isEnforcerUp ? 2 : 6, .enforcer),
            (isBrokerUp ? 3 : 14, .broker), (isBrokerUp ? 4 : 0, .killBrokerAfter), (1, .power),
            (isBrokerUp ? 1 : 0, .powerAfter), (3, .sleep), (2, .loseBroadcast), (isAtSeat ? 24 : 0, .seat),
            (locks ? 30 : 0, .screen),
            (isBusUp ? 1 : 12, .bus),
            (isDiskWell ? 2 : 8, .disk), (isProviderWell ? 2 : 8, .provider), (3, .revoke),
            (2, .service),
            (3, .configure), (7, .pass), (1, .clock), (3, .administrator), (5, .stranger), (9, .settle),
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

    private mutating func action() -> Action {
        let app = random.below(Setting.apps.count)
        switch kind() {
        case .signIn:
            mayBeSignedIn = true
            let person = random.pick(weighted: [(6, 0), (5, 1), (1, 2)])
            return .signIn(app, person: person, isRight: !random.chance(10), patience: random.chance(40) ? 20 : 0)
        case .signOut:
            mayBeSignedIn = false
            return .signOut(app)
        case .token: return .token(app, refresh: random.chance(50))
        case .work: return .work(app)
        case .cancel: return .cancel(app)
        case .again: return .again(app)
        case .startApp: return .startApp(app)
        case .killApp: return .killApp(app)
        case .drop: return .dropConnection(app)
        case .stepFails: return .stepFails(app)
        case .hang: return .hang(app)
        case .enforcer:
            isEnforcerUp.toggle()
            return isEnforcerUp ? .startEnforcer : .killEnforcer
        case .broker:
            isBrokerUp.toggle()
            return isBrokerUp ? .startBroker : .killBroker
        case .killBrokerAfter:
            isBrokerUp = false
            return .killBrokerAfter(random.below(12))
        case .power:
            isBrokerUp = false
            return .cutPower
        case .powerAfter:
            isBrokerUp = false
            return .cutPowerAfter(random.below(12))
        case .bus:
            isBusUp.toggle()
            return isBusUp ? .restoreBus : .loseBus
        case .disk:
            isDiskWell.toggle()
            return .disk(isDiskWell ? .works : random.chance(60) ? .isFull : .standsStill)
        case .provider:
            isProviderWell.toggle()
            return .provider(isProviderWell ? .answers : random.chance(50) ? .fails : .hangs)
        case .revoke:
            mayBeSignedIn = false
            return .revoke(random.below(2))
        case .service: return .killService
        case .configure:
            return .configure(
                random.pick(weighted: [
                    (3, .valid(0)), (2, .valid(1)), (2, .valid(2)), (2, .valid(3)), (1, .valid(4)),
                    (3, .valid(Setting.enforced)), (2, .valid(Setting.organisation)),
                    (1, .valid(Setting.shortGrace)), (isAtSeat ? 4 : 0, .valid(Setting.seat)),
                    (locks ? 4 : 0, .valid(Setting.lock)), (6, .broken),
                    (1, .missing),
                ])
            )
        case .pass: return .pass(random.pick([1, 1, 3, 31, 61, 950]))
        case .sleep: return .sleep(random.pick([61, 590, 3700, 8 * 3600]))
        case .seat: return .atSeat(seatDeed())
        case .screen: return .atScreen(screenDeed())
        case .loseBroadcast: return .loseBroadcast(app)
        case .clock: return .setClock(random.pick([-86400, -600, 600, 86400, 40 * 86400]))
        case .administrator: return random.chance(50) ? .waive(random.below(3)) : .signOutAnyone
        case .stranger: return .stranger(random.pick(Action.Stranger.allCases))
        case .settle: return .settle
        }
    }
}
