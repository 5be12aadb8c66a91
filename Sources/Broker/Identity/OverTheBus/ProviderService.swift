import Basics
public import DBus
public import DBusService
@_spi(Extensions) import SharedDevice
import Synchronization

/// The process's side of the interface: it passes the broker's calls to a provider. It refuses calls of connections
/// that do not own the broker's bus name, before it reads their bodies.
public final class ProviderService: Sendable {
    /// The current provider, or the reason why there is none.
    public typealias Current = @Sendable () -> Result<any OrganisationProvider, IdentityError>

    private let connection: DBusConnection
    private let provider: Current
    private let broker: NameOwner
    private let object = Locked<Observation?>(nil)

    /// - Parameter abandoned: Called when the broker disconnects or changes: its calls in flight have no recipient any
    ///   more.
    public init(connection: DBusConnection, provider: @escaping Current, abandoned: @escaping @Sendable () -> Void) {
        self.connection = connection
        self.provider = provider
        broker = NameOwner(of: BrokerProtocol.busName, on: connection) { _ in abandoned() }
    }

    /// Takes the service's name. On return the service responds to calls.
    ///
    /// - Parameter more: Further methods of the interface. Each checks its caller itself.
    /// - Throws: `DBusError`; `nameTaken` if another process serves this bus.
    public func start(_ more: [DBusInterface.Method] = []) async throws(DBusError) {
        try await broker.start()
        let methods = IdentityProtocol.Method.allCases.map(method) + more
        let ownNames = Set(IdentityProtocol.Method.allCases.map(\.rawValue))
        let token = try connection.export(
            [DBusInterface(IdentityProtocol.interface, methods: methods)],
            at: IdentityProtocol.path,
            limits: Self.limits,
            admit: { [broker] call in
                guard ownNames.contains(call.member), call.sender != broker.current else { return .take() }
                let name = "org.freedesktop.DBus.Error.AccessDenied"
                return .refuse(MethodFailure(name: name, message: "only the device's broker may call this"))
            }
        )
        object.withLock { $0 = token }
        try await connection.requestName(IdentityProtocol.busName)
    }

    private static var limits: CallLimits {
        var limits = CallLimits()
        limits.bodyBytes = IdentityProtocol.longestBody
        limits.callsOfSender = IdentityProtocol.mostCalls
        limits.calls = IdentityProtocol.mostCalls
        limits.bytesOfSender = 4 << 20
        limits.bytes = 4 << 20
        return limits
    }

    private typealias Method = IdentityProtocol.Method

    private func method(_ method: Method) -> DBusInterface.Method {
        DBusInterface.Method(
            method.rawValue,
            in: [.init("request", "a{sv}")],
            out: [.init("answer", "a{sv}")],
            // Only these requests contain a record.
            maximumBodyBytes: [.renew, .end].contains(method) ? IdentityProtocol.longestBody : 16 << 10
        ) { [weak self] call in
            guard let self else { return [] }
            do throws(IdentityError) {
                return [.fields(try await answer(method, IdentityProtocol.fields(of: call.arguments)))]
            } catch {
                throw error.failure
            }
        }
    }

    private func answer(_ method: Method, _ fields: IdentityFields) async throws(IdentityError) -> IdentityFields {
        let provider = try provider().get()
        switch method {
        case .begin:
            let start = try SignInStart(fields)
            return try await inTime { () async throws(IdentityError) in try await provider.begin(start) }.fields
        case .complete:
            let (handle, query) = (try fields.text("handle"), try fields.text("query"))
            return try await inTime { () async throws(IdentityError) in
                try await provider.complete(handle, query: query)
            }.fields
        case .poll: return try await provider.poll(fields.text("handle"))?.fields ?? [:]
        case .cancel:
            await provider.cancel(try fields.text("handle"))
            return [:]
        case .renew:
            let record = try ProviderRecord(fields.fields("record"))
            let (scopes, mayBeUsed) = (try fields.texts("scopes"), try fields.flag("mayBeUsed"))
            let outcome = try await inTime { await provider.renew(record, scopes: scopes, mayBeUsed: mayBeUsed) }
            // Only the time limit cancels this task, so the outcome is late and not cancelled by the person.
            if case .unavailable(let error, let mayBeUsed) = outcome, error.code == .userCanceled {
                return RenewalOutcome.unavailable(.late, mayBeUsed: mayBeUsed).fields
            }
            return outcome.fields
        case .end:
            let (record, keepsSession) = (try ProviderRecord(fields.fields("record")), try fields.flag("keepsSession"))
            try await inTime { () async throws(IdentityError) in
                try await provider.end(record, keepsSession: keepsSession)
            }
            return [:]
        }
    }

    /// Runs `work`, and cancels it after `IdentityProtocol.longestCall`.
    private func inTime<Value: Sendable>(
        _ work: @escaping @Sendable () async throws(IdentityError) -> Value
    ) async throws(IdentityError) -> Value {
        let task = Task { () async -> Result<Value, IdentityError> in
            do throws(IdentityError) {
                return .success(try await work())
            } catch {
                return .failure(error)
            }
        }
        let isLate = Locked(false)
        let limit = IdentityProtocol.longestCall
        let timer = Task {
            guard (try? await Task.sleep(for: limit)) != nil else { return }
            isLate.withLock { $0 = true }
            task.cancel()
        }
        defer { timer.cancel() }
        do throws(IdentityError) {
            return try await task.value.get()
        } catch {
            throw isLate.withLock { $0 } ? .late : error
        }
    }
}
