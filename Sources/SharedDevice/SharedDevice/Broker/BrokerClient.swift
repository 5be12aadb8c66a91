import Basics
public import DBus
public import NotifyCenter
import Synchronization

/// The app's connection to the broker: calls, and the broker's broadcasts. Broadcasts of other senders are ignored.
final class BrokerClient: Sendable {
    private struct State {
        /// The unique name of the broker's connection; `nil` while the broker's name has no owner.
        var owner: String?
        /// Grows with each announcement of an owner, so that an older response about the owner can be recognised.
        var generation: UInt64 = 0
        var busNameProblem: SharedDeviceError?
        var ignoredBroadcasts = 0
        var heardBroadcasts: UInt64 = 0
        var listeners: [UInt64: @Sendable () -> Void] = [:]
        var nextListener: UInt64 = 0
    }

    private struct Watch: Sendable {
        let connection: DBusConnection
        let tokens: [Observation]
        let lease: MatchRuleLease
        let broadcast: NotificationObservation
    }

    private struct CallKind: Hashable {
        let method: BrokerProtocol.Method
        let isAnswered: Bool
    }

    /// The last call of a kind. Copying a message costs a fraction of encoding it.
    private struct Call: Sendable {
        let empty: MessageTemplate
        let request: BrokerProtocol.Fields?
        let whole: MessageTemplate
    }

    let bus: Bus
    private let ownName: String?
    private let state = Locked(State())
    private let calls = Locked<[CallKind: Call]>([:])
    private let watching: Locked<Task<Watch, any Error>?> = Locked(nil)

    init(bus: Bus, ownName: String?) {
        self.bus = bus
        self.ownName = ownName
    }

    // MARK: Calls

    /// Calls the broker. Throws `invalidRequest` for arguments that the bus refuses, for instance a string with a NUL,
    /// and `brokerUnavailable` if there is no response for any reason.
    /// - Parameter isCancellable: whether cancelling the caller's task ends the wait for the response.
    func call(
        _ method: BrokerProtocol.Method,
        _ request: BrokerProtocol.Fields? = nil,
        attempted: String,
        timeout: Duration = .seconds(25),
        isCancellable: Bool = true
    ) async throws(SharedDeviceError) -> BrokerProtocol.Fields {
        let message = try message(method, request, attempted: attempted)
        let answer: [DBusValue]
        do {
            let connection = try await connected()
            answer = try await connection.call(message, timeout: timeout, isCancellable: isCancellable)
        } catch {
            throw Self.failure(error, attempted)
        }
        return try BrokerProtocol.fields(answer, attempted)
    }

    /// Sends the broker a message that has no response, and returns when it is queued. A missing broker goes unnoticed.
    func tell(
        _ method: BrokerProtocol.Method,
        _ request: BrokerProtocol.Fields,
        attempted: String
    ) async throws(SharedDeviceError) {
        let message = try message(method, request, attempted: attempted, options: .noReply)
        do {
            try await connected().queue(message)
        } catch let error as DBusError {
            // Not by `failure(_:_:)`: with it, the optimiser of Swift 6.3 crashes.
            throw SharedDeviceError(error, attempted: attempted)
        } catch {
            throw SharedDeviceError(.brokerUnavailable, attempted: attempted, message: "\(error)")
        }
    }

    private static func failure(_ error: any Error, _ attempted: String) -> SharedDeviceError {
        (error as? DBusError).map { SharedDeviceError($0, attempted: attempted) }
            ?? SharedDeviceError(.brokerUnavailable, attempted: attempted, message: "\(error)")
    }

    private func message(
        _ method: BrokerProtocol.Method,
        _ request: BrokerProtocol.Fields?,
        attempted: String,
        options: DBusMessage.CallOptions = []
    ) throws(SharedDeviceError) -> DBusMessage {
        do throws(DBusError) {
            let kind = CallKind(method: method, isAnswered: !options.contains(.noReply))
            let heard = heardBroadcasts
            let last = calls.withLock { $0[kind] }
            if let last, last.request == request { return try last.whole.filled([]) }
            let empty =
                if let last { last.empty } else {
                    MessageTemplate(try BrokerProtocol.message(method, options: options))
                }
            let message = try empty.filled(request.map { [.fields($0)] } ?? [])
            // Only requests that apps repeat often are cached. They never contain a password.
            let isRepeated = method == .getCurrentAccount || method == .acquireTokenSilently
            let known = Call(
                empty: empty,
                request: isRepeated ? request : nil,
                whole: isRepeated ? MessageTemplate(try message.copy()) : empty
            )
            if isRepeated || last == nil {
                calls.withLock { calls in
                    calls[kind] = known
                    // The account in the request may have signed out by now.
                    if heardBroadcasts != heard { calls[Self.tokenQuestion] = nil }
                }
            }
            return message
        } catch {
            throw SharedDeviceError(.invalidRequest, attempted: attempted, message: error.message)
        }
    }

    // MARK: Changes

    /// Calls `listener` on the reading thread when it is time to ask the broker again: on its broadcast, and when the
    /// broker or the bus comes or goes. The subscription is active on return.
    func onChange(_ listener: @escaping @Sendable () -> Void) async throws(SharedDeviceError) -> Observation {
        let number = state.withLock { state -> UInt64 in
            defer { state.nextListener += 1 }
            state.listeners[state.nextListener] = listener
            return state.nextListener
        }
        let subscription = Observation { [weak self] in
            // Released outside the lock, because its deinitialisation may run any code.
            _ = self?.state.withLock { $0.listeners.removeValue(forKey: number) }
        }
        do {
            _ = try await connected()
            return subscription
        } catch {
            throw SharedDeviceError(.brokerUnavailable, attempted: "listen for account changes", message: "\(error)")
        }
    }

    /// The number of ignored broadcasts that had the broker's notification name but a different sender (architecture,
    /// D11).
    var ignoredBroadcasts: Int { state.withLock { $0.ignoredBroadcasts } }

    /// The reason why the bus refused this app its name; `nil` if it was not refused or not requested.
    var busNameProblem: SharedDeviceError? { state.withLock { $0.busNameProblem } }

    /// The number of the broker's broadcasts, plus the number of times that the owner of the broker's name may have
    /// changed. A response is doubtful if this number changes during the request.
    var heardBroadcasts: UInt64 { state.withLock { $0.heardBroadcasts } }

    func nudge() {
        let listeners = state.withLock { Array($0.listeners.values) }
        for listener in listeners { listener() }
    }

    /// Returns the connection, with the broker's observations in place. All callers share one attempt. After a failure
    /// the next caller makes a new attempt.
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
        let connection = try DBusConnection.whenThere(bus)
        try await connection.connect()
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
        // On the connection that receives the announcements of the owner, so that both arrive in the bus's order.
        let broadcast = try await DarwinNotifyCenter(connection: connection)
            .observeOwner(postsOf: .sharedModeCurrentAccountChanged, delivery: .immediate) {
                [weak self] in self?.hear($0.sender)
            }
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
            // Another process of this app owns the name, so the bus need not start one.
            case .nameTaken: break
            // Continue without the name: an app that the bus cannot start depends even more on the broadcasts.
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

    /// Called when the connection is restored. If the bus refuses this client's observations, the next request makes
    /// them again, or fails with the reason.
    private func restored(_ connection: DBusConnection, _ failures: [DBusError]) {
        guard failures.isEmpty else {
            // Released outside the lock.
            _ = watching.withLock { watching -> Task<Watch, any Error>? in
                defer { watching = nil }
                return watching
            }
            return setOwner(nil)
        }
        let generation = state.withLock { $0.generation }
        Task {
            while true {
                do throws(DBusError) {
                    let owner = try await connection.owner(of: BrokerProtocol.busName)
                    return setOwner(owner, ifStill: generation)
                } catch {
                    // Disconnected again: the next restoration will ask. Other errors may be temporary.
                    guard error.code != .disconnected, error.code != .closed else { return }
                    try? await Task.sleep(for: .seconds(1))
                }
            }
        }
    }

    /// - Parameter generation: the generation of the request that returned this owner. An outdated one is ignored.
    private func setOwner(_ owner: String?, ifStill generation: UInt64? = nil) {
        announce { state in
            guard generation == nil || generation == state.generation else { return false }
            state.generation += 1
            state.owner = owner
            // Broadcasts are ignored while the owner is unknown. Listeners are also told when the owner disappears: the
            // next request then fails, and the app learns that the account is unknown.
            return true
        }
    }

    /// Counts a broadcast and calls the listeners, if `isNews` returns true.
    private func announce(_ isNews: (inout State) -> Bool) {
        let listeners = state.withLock { state -> [@Sendable () -> Void] in
            guard isNews(&state) else { return [] }
            state.heardBroadcasts += 1
            return Array(state.listeners.values)
        }
        // The cached token request names an account that may have signed out.
        calls.withLock { $0[Self.tokenQuestion] = nil }
        for listener in listeners { listener() }
    }

    private static let tokenQuestion = CallKind(method: .acquireTokenSilently, isAnswered: true)

    private func hear(_ sender: String?) {
        announce { state in
            if let sender, sender == state.owner { return true }
            state.ignoredBroadcasts += 1
            return false
        }
    }
}

extension SharedDeviceError {
    @_spi(Extensions) public init(_ error: DBusError, attempted: String) {
        if let name = error.name, name.hasPrefix(BrokerProtocol.errorPrefix) {
            let text = String(name.dropFirst(BrokerProtocol.errorPrefix.count))
            // A later version of the broker may have more reasons to refuse. It has responded, so it is not
            // unavailable.
            let code = Code(text)
            let message = code == nil ? "\(error.message) [\(text)]" : error.message
            self.init(code ?? .brokerFailed, attempted: attempted, message: message)
            declinedScopes = error.details["declinedScopes"]?.stringsValue ?? []
            grantedScopes = error.details["grantedScopes"]?.stringsValue ?? []
        } else if error.code == .cancelled {
            self.init(.userCanceled, attempted: attempted, message: "the task was cancelled")
        } else if error.name == "org.freedesktop.DBus.Error.Failed" {
            self.init(.brokerFailed, attempted: attempted, message: error.message)
        } else {
            let message =
                "the shared-device broker does not respond (\(error)); see that shared-device-broker runs on this bus"
            self.init(.brokerUnavailable, attempted: attempted, message: message)
        }
    }
}

extension NotificationName {
    /// The broadcast of shared device mode after each change of the device's account: ask the broker who is signed in.
    public static let sharedModeCurrentAccountChanged: NotificationName = "SHARED_MODE_CURRENT_ACCOUNT_CHANGED"
}

@_spi(Extensions) public struct BrokerAdministration: Sendable {
    @_spi(Extensions) public let connection: DBusConnection

    /// Connects to the broker's bus. The first call shows whether a broker is running.
    @_spi(Extensions) public init(bus: Bus) throws(SharedDeviceError) {
        do throws(DBusError) {
            connection = try DBusConnection.open(bus)
        } catch {
            throw SharedDeviceError(error, attempted: "reach the broker")
        }
    }

    /// Calls the broker and waits for the response, without blocking a thread. Throws the broker's refusal, or
    /// `brokerUnavailable` if there is no response for any reason.
    @_spi(Extensions) public func call(
        _ method: BrokerProtocol.Method,
        _ fields: BrokerProtocol.Fields? = [:],
        attempted: String = "ask the broker",
        timeout: Duration = .seconds(25)
    ) async throws(SharedDeviceError) -> BrokerProtocol.Fields {
        let answer: [DBusValue]
        do throws(DBusError) {
            answer = try await connection.call(try BrokerProtocol.message(method, fields), timeout: timeout)
        } catch {
            throw SharedDeviceError(error, attempted: attempted)
        }
        return try BrokerProtocol.fields(answer, attempted)
    }

    /// Like ``call(_:_:attempted:timeout:)``, but blocks this thread, for a program that has nothing else to do.
    @_spi(Extensions) public func callAndWait(
        _ method: BrokerProtocol.Method,
        _ fields: BrokerProtocol.Fields? = [:],
        attempted: String = "ask the broker",
        timeout: Duration = .seconds(25)
    ) throws(SharedDeviceError) -> BrokerProtocol.Fields {
        let answer: [DBusValue]
        do throws(DBusError) {
            answer = try connection.callAndWait(try BrokerProtocol.message(method, fields), timeout: timeout)
        } catch {
            throw SharedDeviceError(error, attempted: attempted)
        }
        return try BrokerProtocol.fields(answer, attempted)
    }
}
