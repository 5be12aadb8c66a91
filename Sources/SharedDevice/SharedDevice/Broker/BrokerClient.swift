package import DBusTransport
public import NotifyCenter
import Synchronization

/// The broker as an app reaches it: calls, and word of “something changed” from nobody else.
final class BrokerClient: Sendable {
    private struct State {
        /// The connection that owns the broker's name; `nil` while nobody does.
        var owner: String?
        /// Grows with each word of the bus about the owner, so that an older answer is known for one.
        var generation: UInt64 = 0
        var busNameProblem: SharedDeviceError?
        var ignoredBroadcasts = 0
        var heardBroadcasts: UInt64 = 0
        var listeners: [UInt64: @Sendable () -> Void] = [:]
        var nextListener: UInt64 = 0
    }

    /// What keeps the client informed for as long as it lives.
    private struct Watch: Sendable {
        let connection: DBusConnection
        let tokens: [Observation]
        let lease: MatchRuleLease
        let broadcast: NotificationObservation
    }

    private let bus: Bus
    /// What the bus can start this app by.
    private let ownName: String?
    private let state = Locked(State())
    private let watching: Locked<Task<Watch, any Error>?> = Locked(nil)

    init(bus: Bus, ownName: String?) {
        self.bus = bus
        self.ownName = ownName
    }

    // MARK: Calls

    /// Calls the broker.
    ///
    /// - Parameter isCancellable: whether the end of the caller's task ends the wait for the answer.
    /// - Throws: ``SharedDeviceError``; `invalidRequest` for what the bus does not take, for instance a text with a NUL, and
    ///   `brokerUnavailable` for whatever keeps an answer away.
    func call(
        _ method: BrokerProtocol.Method,
        _ request: BrokerProtocol.Fields? = nil,
        attempted: String,
        timeout: Duration = .seconds(25),
        isCancellable: Bool = true
    ) async throws(SharedDeviceError) -> BrokerProtocol.Fields {
        let message: DBusMessage
        do throws(DBusError) {
            message = try DBusMessage.methodCall(
                destination: BrokerProtocol.busName,
                path: BrokerProtocol.path,
                interface: BrokerProtocol.interface,
                member: method.rawValue,
                arguments: request.map { [.fields($0)] } ?? []
            )
        } catch {
            throw SharedDeviceError(.invalidRequest, attempted: attempted, message: error.message)
        }
        do {
            let connection = try await connected()
            let answer =
                isCancellable
                ? try await connection.call(message, timeout: timeout)
                : try await connection.callUncancelled(message, timeout: timeout)
            guard let fields = answer.first?.fieldsValue else {
                throw SharedDeviceError(.brokerFailed, attempted: attempted, message: "its answer is no dictionary")
            }
            return fields
        } catch let error as SharedDeviceError {
            throw error
        } catch let error as DBusError {
            throw SharedDeviceError(error, attempted: attempted)
        } catch {
            throw SharedDeviceError(.brokerUnavailable, attempted: attempted, message: "\(error)")
        }
    }

    // MARK: Changes

    /// Calls `listener` when it is time to ask the broker again: on its broadcast, when it comes or goes, and when the bus does.
    /// On the reading thread. The subscription is in force on return.
    ///
    /// - Throws: ``SharedDeviceError/Code/brokerUnavailable`` where there is no bus to listen on.
    func onChange(_ listener: @escaping @Sendable () -> Void) async throws(SharedDeviceError) -> ChangeSubscription {
        let number = state.withLock { state -> UInt64 in
            defer { state.nextListener += 1 }
            state.listeners[state.nextListener] = listener
            return state.nextListener
        }
        let subscription = ChangeSubscription { [weak self] in
            // Freed outside the lock, whatever it holds.
            let listener = self?.state.withLock { $0.listeners.removeValue(forKey: number) }
            withExtendedLifetime(listener) {}
        }
        do {
            _ = try await connected()
            return subscription
        } catch {
            throw SharedDeviceError(.brokerUnavailable, attempted: "listen for account changes", message: "\(error)")
        }
    }

    /// Broadcasts of the broker's name that came from somebody else, and were ignored (architecture, D11).
    var ignoredBroadcasts: Int { state.withLock { $0.ignoredBroadcasts } }

    /// Why the bus did not let this app have its name; `nil` where it did, or was not asked.
    var busNameProblem: SharedDeviceError? { state.withLock { $0.busNameProblem } }

    /// The broker's own broadcasts so far, and the bus's words about who it is. One that comes while a request is under way makes its answer doubtful.
    var heardBroadcasts: UInt64 { state.withLock { $0.heardBroadcasts } }

    /// Has all listeners ask again.
    func nudge() {
        let listeners = state.withLock { Array($0.listeners.values) }
        for listener in listeners { listener() }
    }

    /// The connection, with the watch on the broker in place. One attempt serves all who wait; a failed one is made anew by
    /// the next.
    private func connected() async throws -> DBusConnection {
        let task = watching.withLock { watching -> Task<Watch, any Error> in
            if let watching { return watching }
            let task = Task { try await self.watch() }
            watching = task
            return task
        }
        do {
            return try await task.value.connection
        } catch {
            watching.withLock { if $0 == task { $0 = nil } }
            throw error
        }
    }

    private func watch() async throws -> Watch {
        let connection = try DBusConnection.open(bus)
        if let ownName { try await takeName(ownName, connection) }
        let tokens = [
            connection.onSignal { [weak self] in self?.receive($0) },
            try connection.onEvent { [weak self] event in
                switch event {
                case .lost: self?.setOwner(nil)
                case .restored(let failures): self?.restored(connection, failures)
                }
            },
        ]
        let lease = try await connection.addMatch(
            MatchRule(
                signalFrom: "org.freedesktop.DBus",
                interface: "org.freedesktop.DBus",
                member: "NameOwnerChanged",
                argument0: BrokerProtocol.busName
            )
        )
        // The same connection as the owner's changes, so that both arrive in the bus's order.
        let broadcast = try await DarwinNotifyCenter(connection: connection)
            .observe(.sharedModeCurrentAccountChanged, delivery: .immediate) { [weak self] in self?.hear($0.sender) }
        let generation = state.withLock { $0.generation }
        let owner = try await connection.owner(of: BrokerProtocol.busName)
        state.withLock { if $0.generation == generation { $0.owner = owner } }
        return Watch(connection: connection, tokens: tokens, lease: lease, broadcast: broadcast)
    }

    private func takeName(_ name: String, _ connection: DBusConnection) async throws(DBusError) {
        var problem: SharedDeviceError?
        do throws(DBusError) {
            try await connection.requestName(name)
        } catch {
            switch error.code {
            // Another process of this app has it: the bus need not start one.
            case .nameTaken: break
            // An app that the bus cannot start must hear of changes all the more.
            case .refused, .limitsExceeded:
                problem = SharedDeviceError(
                    .notPermitted,
                    attempted: "own the bus name \(name)",
                    message: "\(error); until then the bus cannot start this app to clean up"
                )
            default: throw error
            }
        }
        state.withLock { $0.busNameProblem = problem }
    }

    private func receive(_ message: borrowing DBusMessage) {
        guard message.isBusSignal("NameOwnerChanged"), let arguments = try? message.arguments(),
            arguments.count == 3, arguments[0].stringValue == BrokerProtocol.busName,
            let owner = arguments[2].stringValue
        else { return }
        setOwner(owner.isEmpty ? nil : owner)
    }

    /// The bus is back. Where it does not let this client listen again, the next question builds the watch anew, and fails with
    /// the reason where that cannot be.
    private func restored(_ connection: DBusConnection, _ failures: [DBusError]) {
        guard failures.isEmpty else {
            let dropped = watching.withLock { watching -> Task<Watch, any Error>? in
                defer { watching = nil }
                return watching
            }
            withExtendedLifetime(dropped) {}
            return setOwner(nil)
        }
        let generation = state.withLock { $0.generation }
        Task {
            while true {
                do throws(DBusError) {
                    let owner = try await connection.owner(of: BrokerProtocol.busName)
                    return setOwner(owner, ifStill: generation)
                } catch {
                    // Lost again: its next return asks anew. Anything else may pass.
                    guard error.code != .disconnected, error.code != .closed else { return }
                    try? await Task.sleep(for: .seconds(1))
                }
            }
        }
    }

    /// - Parameter generation: the state of knowledge that the owner is an answer from; one that is over says nothing.
    private func setOwner(_ owner: String?, ifStill generation: UInt64? = nil) {
        let listeners = state.withLock { state -> [@Sendable () -> Void] in
            guard generation == nil || generation == state.generation else { return [] }
            state.generation += 1
            state.owner = owner
            // While the owner was not known, a broadcast of its was taken for a stranger's.
            state.heardBroadcasts += 1
            // Also when it goes: the question then fails, and the app learns that it knows nothing any more.
            return Array(state.listeners.values)
        }
        for listener in listeners { listener() }
    }

    private func hear(_ sender: String?) {
        let listeners = state.withLock { state -> [@Sendable () -> Void] in
            guard let sender, sender == state.owner else {
                state.ignoredBroadcasts += 1
                return []
            }
            state.heardBroadcasts += 1
            return Array(state.listeners.values)
        }
        for listener in listeners { listener() }
    }
}

/// Keeps a change listener in place until its end of life.
final class ChangeSubscription: Sendable {
    private let remove: @Sendable () -> Void

    init(_ remove: @escaping @Sendable () -> Void) { self.remove = remove }

    deinit { remove() }
}

extension SharedDeviceError {
    /// The broker's refusal, or what kept its answer away.
    package init(_ error: DBusError, attempted: String) {
        if let name = error.name, name.hasPrefix(BrokerProtocol.errorPrefix) {
            let text = String(name.dropFirst(BrokerProtocol.errorPrefix.count))
            // A later broker may have more kinds of refusals; it has answered all the same.
            let code = Code(text)
            let message = code == nil ? "\(error.message) [\(text)]" : error.message
            self.init(code ?? .brokerFailed, attempted: attempted, message: message)
        } else if error.code == .cancelled {
            self.init(.userCanceled, attempted: attempted, message: "the task was cancelled")
        } else if error.name == "org.freedesktop.DBus.Error.Failed" {
            self.init(.brokerFailed, attempted: attempted, message: error.message)
        } else {
            let message =
                "the shared-device broker does not answer (\(error)); see that shared-device-broker runs on this bus"
            self.init(.brokerUnavailable, attempted: attempted, message: message)
        }
    }
}

extension NotificationName {
    /// What shared device mode broadcasts whenever the device's account changed: go and ask who is signed in.
    public static let sharedModeCurrentAccountChanged: NotificationName = "SHARED_MODE_CURRENT_ACCOUNT_CHANGED"
}
