import BrokerCore
import DeviceConfiguration
import Foundation
import Identity
import SharedDevice

/// The oracle's knowledge of the sessions of the device and of the provider.
struct ProviderTruth {
    /// When a sign-in began, on both clocks.
    struct Begin {
        let date: Date
        let uptime: Duration
    }

    /// For each session of the device, the provider's session, and the beginning of the sign-in that last proved the
    /// user's identity.
    var sessions: [UInt64: Int] = [:]
    var began: [UInt64: Begin] = [:]
    /// The same beginnings, by the numbers of the provider's sessions. A broker that ends before a sign-in is committed
    /// continues with the previous sign-in.
    var begins: [Int: Begin] = [:]
    var prompts: [String: Begin] = [:]
    /// The provider's last confirmation of the open session.
    var word: Word?
    /// The provider's sessions that were committed to a disk.
    var keptSessions: Set<Int> = []
    /// The provider's sessions whose end this run of the broker has acknowledged. A power cut may undo the sign-out,
    /// which the next check then repeats.
    var heededEnds: Set<Int> = []

    mutating func committed(_ batch: Batch) {
        guard case .some(.some(let kept)) = batch.provider, let record = kept.record else { return }
        keptSessions.insert(record.simulated.session)
    }
}

extension Oracle {
    private func isSinceClockSet(_ uptime: Duration) -> Bool { clockSetAt.map { $0 < uptime } ?? true }

    /// Whether the clocks of broker and provider may disagree on when the session began. The provider's dates follow
    /// the clock as it was last set.
    func isDoubtful(session: UInt64) -> Bool { provider.began[session].map { !isSinceClockSet($0.uptime) } ?? false }

    mutating func judgeProvider(_ event: Event, _ effects: [Effect], _ state: BrokerState, _ world: World) {
        var opened: Int?
        var isNew = false
        var began = ProviderTruth.Begin(date: world.now.wall, uptime: world.now.uptime)
        if case .signedIn(let name, .success(let signIn?)) = event {
            let number = signIn.record.simulated.session
            opened = number
            began = provider.prompts[name] ?? began
            provider.begins[number] = began
        }
        for effect in effects {
            switch effect {
            case .journal(let entry) where entry.event == .signedIn:
                isNew = true
                guard let session = entry.session else { break }
                // The number of a failed session is reused, perhaps by a session without a provider.
                provider.sessions[session] = opened
                provider.began[session] = began
            case .beginSignIn(let name, _):
                provider.prompts[name] = ProviderTruth.Begin(date: world.now.wall, uptime: world.now.uptime)
            case .journal(let entry) where entry.event == .signedOut:
                if entry.detail?.hasPrefix("the provider has ended its session") == true {
                    signedOutByProvider(entry.session ?? 0, world)
                }
                if entry.detail?.hasPrefix("offline for") == true { signedOutOffline(entry.session ?? 0, world) }
            case .renew(_, let record, _, let mayBeUsed):
                let (session, token) = record.simulated
                guard let truth = world.organisation.sessions[session], !truth.isRevoked, !truth.isEnded else { break }
                if truth.token != token, !mayBeUsed {
                    fail("a refresh token was used twice without a word", "\(token) of session \(session)")
                }
            default: break
            }
        }
        // The same user has signed in again, and the session of the device continues.
        if let opened, !isNew, state.device.account != nil, state.providerRecord?.simulated.session == opened,
            let before = provider.sessions[state.device.epoch], before != opened
        {
            provider.sessions[state.device.epoch] = opened
            provider.began[state.device.epoch] = began
            provider.word = Word(session: state.device.epoch, at: world.now.uptime)
        }
        defer { judgeGrace(event, effects, state, world) }
        if !isDoubtful(session: state.device.epoch), state.device.account != nil,
            let number = provider.sessions[state.device.epoch],
            provider.heededEnds.contains(number), state.providerRecord?.simulated.session == number
        {
            fail("an account is signed in by a session whose end was heeded", "the provider's \(number)")
        }
    }

    private mutating func signedOutByProvider(_ session: UInt64, _ world: World) {
        guard !isDoubtful(session: session), let number = provider.sessions[session],
            let truth = world.organisation.sessions[number], !truth.isRevoked
        else { return }
        // The device itself has ended the session and lost the sign-out in a power cut. The provider's response makes
        // up for that.
        if truth.isEnded { return }
        // An event during the sign-in counts. So does an event before the sign-in, within the permitted difference of
        // the clocks.
        if let revoked = world.organisation.revokedAt[truth.person], let began = provider.began[session],
            began.date.timeIntervalSince(revoked) <= 61
        {
            return
        }
        fail(
            truth.isReused ? "a lost response signed an account out" : "the provider's word ended another session",
            "session \(session), the provider's \(number)"
        )
    }

    mutating func heeded(_ told: SimulatedProvider.Told, _ world: World) {
        if let number = told.session { provider.heededEnds.insert(number) }
        guard let number = told.session, let device = world.broker?.device, device.account != nil,
            !isDoubtful(session: device.epoch),
            provider.sessions[device.epoch] == number
        else { return }
        fail("a session goes on that the provider has ended", "\(device.epoch), the provider's \(number)")
    }

    mutating func gaveToken(_ value: String, _ world: World) {
        guard value.hasPrefix("provider "), let number = Int(value.dropFirst("provider ".count)) else { return }
        guard let kept = world.disk.provider?.record?.simulated.token, kept >= number else {
            return fail("a token came before its record was on the disk", value)
        }
    }

    /// Checks at the end that the provider knows of each ended session.
    mutating func checkProviderEnd(_ world: World) {
        guard let broker = world.broker else { return }
        let open = broker.device.account.flatMap { _ in broker.providerRecord?.simulated.session }
        for number in provider.keptSessions.sorted() where number != open {
            // A pending end is dropped after some days, by a clock that may have been set since.
            guard let session = world.organisation.sessions[number], isSinceClockSet(session.openedAt) else { continue }
            if session.isOpen { return fail("the provider never hears that a session is over", "\(number)") }
        }
    }
}

// MARK: Grace

/// The provider's last confirmation of a session, and the events since that extend the deadline.
struct Word {
    let session: UInt64
    var at: Duration
    /// When the machine first woke in this run of the broker with its grace over or nearly over.
    var wokeAt: Duration?
    /// When the broker was started after the confirmation.
    var startedAt: Duration?
    /// When the provider demanded reauthentication.
    var wantedAt: Duration?
    /// Whether the broker may misjudge the time of the confirmation, because it was started after the clock was set.
    var isDoubtful = false
}

extension Oracle {
    /// How long a check may take, how long a user has to reauthenticate, the longest time between two checks, and how
    /// far the two clocks may differ by rounding.
    private static let (answer, person) = (Duration.seconds(90), Duration.seconds(600))
    private static let (interval, rounding) = (Duration.seconds(330), Duration.milliseconds(10))

    /// The broker has read its disk, with the confirmation that is stored there.
    mutating func startedProvider(_ state: BrokerState, _ world: World) {
        let session = state.device.epoch
        let before = provider.word.flatMap { $0.session == session ? $0 : nil }
        provider.word = nil
        guard state.device.account != nil, provider.sessions[session] != nil else { return }
        let kept = world.disk.providerOwner?.epoch == session ? world.disk.provider : nil
        // Without a record on the disk it is unknown whether the user's last sign-in was committed.
        let number = kept?.record?.simulated.session
        provider.sessions[session] = number
        provider.began[session] = number.flatMap { provider.begins[$0] }
        guard let kept else { return }
        let age = Duration.seconds(max(0, world.now.wall.timeIntervalSince(kept.checkedAt)))
        var word = Word(session: session, at: world.now.uptime - age, startedAt: world.now.uptime)
        word.isDoubtful = isDoubtful(session: session)
        if kept.needsPerson { word.wantedAt = before?.wantedAt ?? .zero }
        if let before, !word.isDoubtful, word.at > before.at + Self.rounding {
            return fail("a start of the broker was taken for the provider's word", "session \(session)")
        }
        provider.word = word
    }

    /// The first event after a sleep is about to arrive.
    mutating func woke(_ world: World) {
        guard let word = provider.word, word.wokeAt == nil, let grace = policy.organisation?.offlineGrace.duration,
            word.at + grace < world.now.uptime + Self.answer
        else { return }
        provider.word?.wokeAt = world.now.uptime
    }

    private mutating func signedOutOffline(_ session: UInt64, _ world: World) {
        guard let word = provider.word, word.session == session, !word.isDoubtful,
            let grace = policy.organisation?.offlineGrace.duration
        else { return }
        let now = world.now.uptime + Self.rounding
        if now < word.at + grace { fail("a session ended within its grace", "\(session), after \(now - word.at)") }
        if let wanted = word.wantedAt {
            if now < wanted + Self.person, wanted > word.startedAt ?? .zero {
                fail("a person had no time to sign in again", "\(session), \(now - wanted)")
            }
        } else if let woke = word.wokeAt, now < woke + Self.answer {
            fail("a machine that has slept had no time for its network", "\(session), \(now - woke)")
        }
    }

    /// Updates the confirmation after an event, and checks that the session has not outlasted its grace.
    private mutating func judgeGrace(_ event: Event, _ effects: [Effect], _ state: BrokerState, _ world: World) {
        let session = state.device.epoch
        guard state.device.account != nil, let number = provider.sessions[session] else {
            provider.word = nil
            return
        }
        if provider.word?.session != session { provider.word = Word(session: session, at: world.now.uptime) }
        if case .renewed(_, .renewed(_, let record?)) = event, record.simulated.session == number,
            provider.word?.wantedAt == nil
        {
            provider.word = Word(session: session, at: world.now.uptime)
        }
        for case .note(_, "the provider wants the person to sign in again", _) in effects {
            provider.word?.wantedAt = world.now.uptime
        }
        // A new configuration takes effect with the next event.
        if case .configured = event { return }
        guard let word = provider.word, !word.isDoubtful, let grace = policy.organisation?.offlineGrace.duration else {
            return
        }
        var end = [word.at + max(grace, Self.interval), word.wokeAt, word.startedAt].compactMap(\.self).max() ?? .zero
        end += Self.answer
        if let wanted = word.wantedAt { end = max(end, wanted + Self.person) }
        if world.now.uptime > end + Self.rounding {
            fail("a session outlasts its grace", "\(session), \(world.now.uptime - word.at) after the last word")
        }
    }
}
