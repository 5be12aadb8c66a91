import Basics
import Cryptography
package import DBus
import Dispatch
package import Fleet
import FleetService
import Glibc
package import MQTTClient
@_spi(Extensions) import SharedDevice
import Synchronization

/// A device's agent: performs the effects of ``AgentState``, one event after another on one queue.
package final class AgentService: FleetService {
    private struct Asking {
        var questions = QuestionOrder()
        /// The uptime of the next tick on the queue.
        var tickAt: Double?
        var diskProblem: String?
    }

    /// `nil` if unusable: the agent then keeps its time limits without a connection.
    private let configuration: FleetConfiguration?
    package let needsConfiguration: Bool
    private let file: AgentFile
    private let questions: BrokerQuestions
    private let log: @Sendable (String) -> Void
    private let queue = DispatchQueue(label: "agent")
    private let state: Locked<AgentState>
    private let asking = Locked(Asking())
    private let client = Locked<MQTTClient?>(nil)
    private let wishes: (stream: AsyncStream<Void>, continuation: AsyncStream<Void>.Continuation)
    private let serving = Locked<Task<Void, Never>?>(nil)

    /// - Throws: ``FleetRefusal`` for unusable files, unless a time limit without contact is known, which must be kept
    ///   in any case; ``SharedDeviceError`` if there is no such bus.
    package init(
        _ configuration: Result<FleetConfiguration, FleetRefusal>,
        stateDirectory: String,
        bus: Bus,
        checksKey: Bool,
        log: @escaping @Sendable (String) -> Void
    ) throws {
        self.log = log
        file = AgentFile(directory: stateDirectory)
        let rules = try AgentRules(configuration, file, log, checksKey: checksKey)
        self.configuration = rules.configuration
        needsConfiguration = rules.needsConfiguration
        questions = BrokerQuestions(broker: try BrokerAdministration(bus: bus))
        state = Locked(AgentState(policy: rules.policy, memory: rules.memory, now: .now))
        wishes = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
    }

    /// The options of the connection, with the will that reports the device as disconnected (FL-9).
    package var options: MQTTOptions? {
        guard let configuration else { return nil }
        var options = MQTTOptions(configuration)
        options.will = presence(isOnline: false, configuration)
        return options
    }

    /// Starts following server and broker. Throws ``MQTTError`` if the system provides no thread.
    package func start() async throws {
        // Inside the lock, so that the first event finds the client.
        try client.withLock { [options] client throws(MQTTError) in
            guard let options else { return }
            client = try MQTTClient(options) { [weak self] event in self?.take(event) }
        }
        queue.async { self.handle(.tick) }
        let task = Task {
            async let polling: Void = poll()
            async let asking: Void = ask()
            _ = await (polling, asking)
        }
        serving.withLock { $0 = task }
    }

    package var isAlive: Bool { queue.sync { true } }

    /// Stops, and tells the server that the device is disconnected.
    package func stop() async {
        let task = serving.withLock { $0 }
        task?.cancel()
        await task?.value
        await withCheckedContinuation { continuation in
            // Not on the queue, because the client's thread waits for the queue.
            DispatchQueue.global().async { [self] in
                tell { try $0.publish(presence(isOnline: false, $1)) }
                client.withLock { $0 }?.closeAndWait()
                continuation.resume()
            }
        }
    }

    // MARK: Events

    /// Called on the client's thread, which blocks until the event is handled, so that events do not pile up.
    private func take(_ event: MQTTEvent) {
        switch event {
        case .connected:
            if let configuration { log("connected to \(configuration.host):\(configuration.port)") }
            queue.sync { handle(.connected) }
        case .lost(let error):
            log("\(error)")
            queue.sync { handle(.disconnected) }
        case .refused(let error):
            log("\(error)")
            if error.topic != nil { queue.sync { handle(.refused) } }
        case .hasRoom, .accepted: break
        case .message(let message):
            let event = self.event(of: message)
            queue.sync { handle(event) }
        }
    }

    private func event(of message: MQTTMessage) -> AgentEvent {
        guard let configuration else { return .tick }
        do throws(FleetRefusal) {
            let content = try FleetEvent(parsing: message.payload).message
            switch (configuration.topics.topic(message.topic), content) {
            case (.allDesired, .desired(let order)): return .desired(.all, order)
            case (.desired(configuration.name), .desired(let order)): return .desired(.own, order)
            // A retained heartbeat does not show that the controller is present.
            case (.heartbeat, .heartbeat(let highest)) where !message.isRetained: return .heartbeat(highest: highest)
            default: return .foreign("it is on the wrong topic")
            }
        } catch {
            return .foreign("\(error)")
        }
    }

    /// Called on the queue.
    private func handle(_ event: AgentEvent) {
        let (effects, wake) = state.withLock { state in
            let now = Moment.now
            return (state.handle(event, now: now), state.wake(now: now).map { $0 - now.uptime })
        }
        for effect in effects { carryOut(effect) }
        if let wake { tick(after: wake) }
    }

    /// Schedules a tick, unless an earlier one is. At most a minute ahead: timers stand still while the machine sleeps.
    private func tick(after seconds: Double) {
        let seconds = min(max(seconds, 0), 60)
        let time = Moment.now.uptime + seconds
        let isFirst = asking.withLock { asking in
            guard asking.tickAt.map({ time < $0 - 0.01 }) ?? true else { return false }
            asking.tickAt = time
            return true
        }
        guard isFirst else { return }
        queue.asyncAfter(deadline: .now() + seconds) { [weak self] in
            guard let self else { return }
            self.asking.withLock { if $0.tickAt == time { $0.tickAt = nil } }
            self.handle(.tick)
        }
    }

    // MARK: Effects

    private func carryOut(_ effect: AgentEffect) {
        switch effect {
        case .subscribe: tell { try $0.subscribe(to: $1.topics.forDevice($1.name)) }
        case .publishPresence: tell { try $0.publish(presence(isOnline: true, $1)) }
        case .publish(let report): tell { try $0.publish(message(.reported(report), "\(report.sequence)", $1)) }
        case .store(let memory): store(memory)
        case .signOut(let session, let reason):
            Task { [questions, queue] in
                let answer = await questions.signOut(session, reason: reason)
                queue.async { self.handle(.signOutAnswered(answer)) }
            }
        case .askDevice:
            asking.withLock { $0.questions.begin() }
            wishes.continuation.yield()
        case .note(let line): log(line)
        }
    }

    /// Sends to the server. A failure means that the connection is lost; the next one sends everything again.
    private func tell(_ send: (MQTTClient, FleetConfiguration) throws -> Void) {
        guard let configuration, let client = client.withLock({ $0 }) else { return }
        try? send(client, configuration)
    }

    private func store(_ memory: AgentMemory) {
        let problem = file.write(memory)
        let isNews = asking.withLock { asking in
            defer { asking.diskProblem = problem }
            return asking.diskProblem != problem
        }
        guard isNews else { return }
        if let problem { log(problem) }
        queue.async { self.handle(.stored(problem: problem)) }
    }

    private func presence(isOnline: Bool, _ configuration: FleetConfiguration) -> MQTTMessage {
        message(.presence(isOnline: isOnline), isOnline ? "online" : "offline", configuration)
    }

    private func message(
        _ content: FleetMessage,
        _ identifier: String,
        _ configuration: FleetConfiguration
    ) -> MQTTMessage {
        let isReport = if case .reported = content { true } else { false }
        let topic = isReport ? FleetTopic.reported(device: configuration.name) : .presence(device: configuration.name)
        let event = FleetEvent(
            content,
            source: "/fleet/\(configuration.topics.fleet)/\(configuration.name)",
            identifier: identifier,
            time: Moment.now.wall
        )
        return MQTTMessage(
            topic: configuration.topics.text(topic),
            payload: event.bytes,
            isRetained: true,
            contentType: FleetEvent.contentType
        )
    }

    // MARK: The broker

    private func poll() async {
        var known: UInt64?
        while !Task.isCancelled { known = await askOnce(after: known) }
        wishes.continuation.finish()
    }

    /// Asks whenever the state wants a response now.
    private func ask() async { for await _ in wishes.stream { _ = await askOnce(after: nil) } }

    /// - Returns: the known revision; `nil` to ask again at once.
    private func askOnce(after known: UInt64?) async -> UInt64? {
        let number = asking.withLock { $0.questions.latest }
        let (event, revision): (AgentEvent, UInt64?)
        do throws(SharedDeviceError) {
            let answer = try await questions.view(after: known)
            (event, revision) = (.device(answer.view), answer.revision)
        } catch {
            // The agent is stopping, so the known state remains.
            if Task.isCancelled { return nil }
            (event, revision) = (.deviceUnknown("\(error)"), nil)
        }
        let isSynchronised = SystemClock.isSynchronised
        // Read each time, because it may have been renewed.
        let certificateEnd = configuration.map(CertificateTerm.end(of:))
        let known = await withCheckedContinuation { continuation in
            queue.async { [self, event] in
                let answer = asking.withLock { $0.questions.take(number, revision: revision) }
                if answer.counts {
                    // Before the view, which may cause a report.
                    handle(.clockSynchronised(isSynchronised))
                    handle(.certificate(end: certificateEnd))
                    handle(event)
                }
                continuation.resume(returning: answer.known)
            }
        }
        if revision == nil { try? await Task.sleep(for: .seconds(1)) }
        return known
    }
}
