import Basics
import DBus
import DeviceConfiguration
import DeviceStorage
import Dispatch
import FoundationEssentials
import Identity
import Logging
import NotifyCenter
@_spi(Extensions) import SharedDevice
import Synchronization

extension BrokerService {
    /// Carries out an effect on the thread that submitted the event. Only the effect for the engine's own queue blocks.
    func perform(_ effect: Effect) {
        switch effect {
        case .reply(let number, let result): interface.reply(number, result)
        case .noteState(let state): note(state)
        case .announce(let modeChanged):
            interface.forgetAnswers()
            announce(modeChanged)
        case .commit(let batch):
            // The cached responses may contain data that the store erases.
            if batch.erases { interface.forgetAnswers() }
            commit(batch)
        case .authenticate(let number, let credentials):
            ask(
                { [provider] () throws(IdentityError) in try await provider.authenticate(credentials) },
                answer: { .authenticated(number, $0) }
            )
        case .issueToken(let number, let account, let scopes):
            ask(
                { [provider] () throws(IdentityError) in try await provider.issueToken(for: account, scopes: scopes) },
                answer: { .issued(number, $0) }
            )
        case .beginSignIn(let name, let start):
            ask(
                { [organisation] () throws(IdentityError) in try await organisation.begin(start) },
                answer: { .signInBegan(name, $0) }
            )
        case .completeSignIn(let name, let handle, let query):
            ask(
                { [organisation] () throws(IdentityError) -> ProviderSignIn? in
                    try await organisation.complete(handle, query: query)
                },
                answer: { .signedIn(name, $0) }
            )
        case .pollSignIn(let name, let handle):
            ask(
                { [organisation] () throws(IdentityError) in try await organisation.poll(handle) },
                answer: { .signedIn(name, $0) }
            )
        case .cancelSignIn(let handle): Task { [organisation] in await organisation.cancel(handle) }
        case .renew(let number, let record, let scopes, let mayBeUsed):
            Task { [engine, organisation] in
                let outcome = await organisation.renew(record, scopes: scopes, mayBeUsed: mayBeUsed)
                engine.submit(.renewed(number, outcome))
            }
        case .tellSessionEnd(let number, let record, let keepsSession):
            ask(
                { [organisation] () throws(IdentityError) in
                    try await organisation.end(record, keepsSession: keepsSession)
                },
                answer: { result in
                    if case .failure(let error) = result { return .sessionEndTold(number, error) }
                    return .sessionEndTold(number, nil)
                }
            )
        case .startService(let app, let name): startService(app, name)
        case .endLogins(let sessions): endLogins(sessions)
        case .allowShutdown: login.withLock { $0 }?.allowShutdown()
        case .authorise(let number, let caller, let right, let isInteractive):
            // Only on the system bus is polkit's name protected.
            guard options.bus == .system else { return engine.submit(.authorised(number, false)) }
            Task { [engine, connection] in
                let polkit = PolkitAuthority(connection: connection)
                engine.submit(.authorised(number, await polkit.permits(caller, right, isInteractive: isInteractive)))
            }
        case .findOperators(let names):
            Task { [engine] in
                let users = await onSystemThread { Operators(names).users }
                engine.submit(.operatorsFound(names: names, users: users))
            }
        case .readLog(let number, let filter): readLog(number, filter)
        case .keepActivity(let date):
            // If the queue is full, this date is lost; a later one follows.
            disk.submit { [activity, log] in
                if let problem = activity.write(date) {
                    log.warning("a restart will not know of the last activity", metadata: ["reason": "\(problem)"])
                }
            }
        case .journal(let entry): log.info("\(entry.event.rawValue)", metadata: entry.metadata)
        case .note(let level, let text, let details):
            log.log(level: level, "\(text)", metadata: details.mapValues { "\($0)" })
        }
    }

    /// Asks a provider and submits its response as an event. Each request has its own task, so that a stalled provider
    /// holds up no other effect.
    private func ask<Value: Sendable>(
        _ question: @escaping @Sendable () async throws(IdentityError) -> Value,
        answer event: @escaping @Sendable (Result<Value, IdentityError>) -> Event
    ) {
        Task { [engine] in
            do throws(IdentityError) {
                engine.submit(event(.success(try await question())))
            } catch {
                engine.submit(event(.failure(error)))
            }
        }
    }

    /// How long a stalled disk may delay a broadcast.
    private static let notePatience = DispatchTimeInterval.milliseconds(50)

    /// Notes a sign-out: the only effect that may block, on the engine's own queue. After the broadcast, a restart of
    /// the broker must not restore the session.
    private func note(_ state: DeviceState) {
        let isNoted = DispatchSemaphore(value: 0)
        // The note in memory has its own thread, too: memory that is rarely used may be swapped out to a stalled disk.
        let isRemembered = memoryNotes.submit { [store] in
            store.notes.noteInMemory(state, at: Date())
            isNoted.signal()
        }
        let isTaken = notes.submit { [store, log] in
            if let problem = store.notes.note(state, at: Date()) {
                log.error("a sign-out is not noted: \(store.notes.undoing)", metadata: ["reason": "\(problem)"])
            }
            isNoted.signal()
        }
        let patience = DispatchTime.now() + Self.notePatience
        for isAwaited in [isRemembered, isTaken] where !isAwaited || isNoted.wait(timeout: patience) != .success {
            let reason = "the disk does not keep up"
            return log.error("a sign-out is not noted yet: \(store.notes.undoing)", metadata: ["reason": "\(reason)"])
        }
    }

    private func announce(_ modeChanged: Bool) {
        do throws(DBusError) {
            try center.queue(.sharedModeCurrentAccountChanged)
            if modeChanged { try center.queue(NotificationName(BrokerProtocol.modeChangedNotification)) }
            callers.announced()
        } catch {
            // Once the bus is back, all apps are told to ask.
            log.warning("not announced", metadata: ["reason": "\(error)"])
        }
    }

    private func commit(_ batch: Batch) {
        let isTaken = disk.submit { [store, engine, disk, log] in
            do throws(StoreError) {
                try store.commit(batch)
                engine.submit(.committed(batch.number))
            } catch {
                engine.submit(.commitFailed(batch, "\(error)"))
            }
            guard batch.erases else { return }
            let erase: @Sendable () -> Void = {
                store.database.eraseRemnants()
                guard let remnants = store.database.remnants else { return }
                log.warning("left in the store's file", metadata: ["reason": "\(remnants)"])
            }
            // Queued behind other work, because no request waits for it.
            if !disk.submit(erase) { erase() }
        }
        if !isTaken { engine.submit(.commitFailed(batch, "the disk does not keep up")) }
    }

    private func readLog(_ number: UInt64, _ filter: AuditLog.Filter) {
        let isTaken = reads.submit { [store, engine] in
            let log = AuditLog(database: store.database)
            engine.submit(.logRead(number, Result { () throws(StoreError) in try log.lines(filter) }))
        }
        guard !isTaken else { return }
        let problem = "too many others read it at this moment; ask again"
        engine.submit(.logRead(number, .failure(StoreError(.busy, attempted: "read the audit log", message: problem))))
    }

    private func startService(_ app: String, _ name: String) {
        Task { [engine, connection] in
            let outcome: ServiceStart
            do throws(DBusError) {
                // 1 means that the bus started the service, 2 that it was running.
                let answer = try await connection.callBus("StartServiceByName", [.string(name), .uint32(0)])
                outcome = answer.first?.unsignedValue == 1 ? .started : .running
            } catch {
                outcome = error.code == .disconnected || error.code == .closed ? .noBus : .failed(error.message)
            }
            engine.submit(.serviceStarted(app: app, outcome))
        }
    }
}
