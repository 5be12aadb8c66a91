import BrokerCore
import DBus
import DeviceConfiguration
import Foundation
@_spi(Extensions) import SharedDevice

/// A device in one process: the broker's own reducer, apps, bus, identity provider and disk, on a simulated clock. Only
/// a step of a schedule or ``progress(_:)`` makes anything happen, so a schedule always runs the same way.
final class World {
    enum DiskMode: Hashable { case works, isFull, standsStill }
    enum ProviderMode: Hashable { case answers, fails, hangs }

    /// Work for the broker's disk thread, in order.
    enum DiskJob {
        case batch(Batch)
        case activity(Date)
        case configuration(ManagedConfiguration)
    }

    enum Incoming {
        case request(Request)
        case left(String)
    }

    /// A place for a process. Its properties stay the same until the process ends.
    struct Slot {
        let home: Int?
        let user: UInt32
        let executable: String
        /// The app that the process claims to be.
        let name: String?
        var process: AppProcess?
        var connection = ""
        var calls = Calls()
        var toBroker: [Incoming] = []
        var toApp: [AppProcess.Message] = []
        /// Whether the process has stopped responding for ever.
        var isHung = false
        /// The number of coming broadcasts that the process will miss.
        var lostBroadcasts = 0
        var hasMissedBroadcast = false

        var isRunning: Bool { process != nil }
    }

    static let fullDisk = "the disk is full"
    static let administrator = Setting.slots.count
    static let enforcer = administrator + 1
    /// The identity service, and the prompt.
    static let (service, prompt) = (enforcer + 1, enforcer + 2)
    static let screen = prompt + 1

    /// Ends the broker while it performs effects.
    struct Stop {
        var effects: Int
        let isPowerCut: Bool
    }

    let mutant: Mutant?
    let hasManyUsers: Bool
    var trace: ((String) -> Void)?
    var random: SplitMix64

    var now = Moment(wall: Date(timeIntervalSince1970: 1_700_000_000), uptime: .seconds(1000))
    var broker: BrokerState?
    /// The broker's next deadline. It is cached because it is slow to compute and each step needs it.
    var deadline: Duration?
    var stop: Stop?
    /// How much sleep the broker has learnt of.
    var heardAsleep = Duration.zero
    /// By how much the wall clock was set in all.
    var clockShift = Duration.zero
    var diskMode = DiskMode.works
    var disk = VirtualDisk()
    var kept: ManagedConfiguration?
    var jobs: [DiskJob] = []
    /// A state that is queued for the thread that writes notes.
    var waitingNote: DeviceState?
    /// The synced content of a disk that does not sync, which is what a power cut leaves.
    var synced: VirtualDisk?
    var providerMode = ProviderMode.answers
    var questions: [Event] = []
    /// The organisation's provider, for configurations that name it.
    var organisation = SimulatedProvider()
    var seat = SimulatedSeat()
    var screen = SimulatedScreen()
    var starts: [(app: String, name: String)] = []
    var isBusUp = true
    var file = Setting.File.valid(0)
    /// The last valid content since the broker's start.
    var latest: ManagedConfigurationFile.Content?

    var enforcer: EnforcerProcess?
    /// Whether the enforcer is still on the bus after the broker has lost it.
    var isEnforcerLeftOnBus = false
    var manifests: [AppManifest]
    var slots: [Slot]
    var homes: [Home]
    var connections = 0
    /// The connections that have called the broker.
    var known: Set<String> = []
    /// The requests without a response, with the slot that waits.
    var unanswered: [UInt64: Int] = [:]
    var oracle = Oracle()
    var steps = 0

    init(seed: UInt64, mutant: Mutant?, hasManyUsers: Bool, trace: ((String) -> Void)? = nil) {
        self.mutant = mutant
        self.hasManyUsers = hasManyUsers
        oracle.hasManyUsers = hasManyUsers
        manifests = Setting.manifests(areProven: hasManyUsers)
        self.trace = trace
        random = SplitMix64(seed: seed)
        homes = Setting.homes.map(Home.init)
        slots = Setting.slots
        for program in ["shared-device", "shared-device-cleanup", "shared-device-identity"] {
            slots.append(Slot(home: nil, user: 0, executable: "/usr/bin/\(program)", name: nil))
        }
        slots.append(
            Slot(home: nil, user: 1000, executable: Setting.prompt.path, name: BrokerProtocol.promptIdentifier)
        )
        slots.append(Slot(home: nil, user: 1000, executable: Setting.screenPath, name: BrokerProtocol.screenIdentifier))
        for index in slots.indices { connect(index) }
    }

    func note(_ text: @autoclosure () -> String) { trace?(text()) }

    var violation: String? { oracle.violation }

    // MARK: Progress

    typealias Step = (World) -> Void

    /// All steps that can happen next without a fault or a user's action.
    func enabled() -> [Step] {
        var found: [Step] = []
        let isUp = broker != nil
        for index in slots.indices {
            if isUp, isBusUp, !slots[index].toBroker.isEmpty { found.append { $0.brokerReads(index) } }
            guard slots[index].process != nil, !slots[index].isHung else { continue }
            if !slots[index].toApp.isEmpty { found.append { $0.appReads(index) } }
            if isBusUp, slots[index].process?.canAct(at: now.uptime) == true { found.append { $0.appActs(index) } }
        }
        if let enforcer {
            if !slots[Self.enforcer].toApp.isEmpty { found.append { $0.enforcerReads() } }
            if isBusUp, enforcer.canAct(at: now.uptime), isUp || !enforcer.work.isEmpty {
                found.append { $0.enforcerActs() }
            }
        }
        if !jobs.isEmpty, diskMode != .standsStill { found.append { $0.diskWorks() } }
        if !questions.isEmpty, providerMode != .hangs, isUp { found.append { $0.providerAnswers() } }
        if !organisation.questions.isEmpty, providerMode != .hangs, isUp { found.append { $0.organisationAnswers() } }
        if serviceCanTell { found.append { $0.serviceTells() } }
        if !starts.isEmpty, isUp { found.append { $0.busStarts() } }
        if let deadline, deadline <= now.uptime { found.append { $0.feed(.time) } }
        if isUp, !seat.events.isEmpty { found.append { $0.seatTells() } }
        if isUp, hasSlept { found.append { $0.feed(.time) } }
        return found
    }

    /// Takes up to this many steps in random order.
    func progress(_ count: Int) {
        for _ in 0..<count where violation == nil {
            let steps = enabled()
            guard !steps.isEmpty else { return }
            take(steps[random.below(steps.count)])
        }
    }

    func take(_ step: Step) {
        steps += 1
        step(self)
        oracle.check(self)
    }

    /// Advances the time, and wakes the broker at each of its deadlines.
    func advance(by duration: Duration) {
        if hasSlept { feed(.time) }
        while broker != nil, !seat.events.isEmpty { seatTells() }
        deliverFromScreen()
        let end = now.uptime + duration
        var wakes = 0
        while violation == nil, let deadline, deadline <= end {
            pass(to: max(deadline, now.uptime))
            feed(.time)
            deliverFromScreen()
            oracle.check(self)
            wakes += 1
            if wakes > 10_000 { return oracle.fail("bounds", "the broker wants to be woken without end") }
        }
        pass(to: end)
    }

    /// Whether the machine has slept since the broker's last event.
    private var hasSlept: Bool { now.asleep > heardAsleep }

    /// The machine sleeps. Nothing wakes the broker during the sleep, and any event may be its first one afterwards.
    func sleep(for duration: Duration) {
        if hasSlept { feed(.time) }
        note("the machine sleeps for \(duration)")
        pass(to: now.uptime + duration)
        now.asleep += duration
        if broker == nil { heardAsleep = now.asleep }
    }

    private func pass(to uptime: Duration) {
        guard uptime > now.uptime else { return }
        now.wall += (uptime - now.uptime) / .seconds(1)
        now.uptime = uptime
    }
}
