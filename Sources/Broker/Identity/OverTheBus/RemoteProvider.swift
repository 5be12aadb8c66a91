public import DBus

/// The organisation's provider in another process, `shared-device-identity`, which the bus starts with the first call.
/// That process may use the network, and reads untrusted data; the caller does neither, and checks its responses.
public final class RemoteProvider: OrganisationProvider {
    private let connection: DBusConnection

    /// - Parameter connection: The connection that owns the broker's name. The process responds to no other.
    public init(connection: DBusConnection) { self.connection = connection }

    public func begin(_ start: SignInStart) async throws(IdentityError) -> BegunSignIn {
        try BegunSignIn(await call(.begin, start.fields))
    }

    public func complete(_ handle: String, query: String) async throws(IdentityError) -> ProviderSignIn {
        try ProviderSignIn(await call(.complete, ["handle": .string(handle), "query": .string(query)]))
    }

    public func poll(_ handle: String) async throws(IdentityError) -> ProviderSignIn? {
        let answer = try await call(.poll, ["handle": .string(handle)])
        return answer.isEmpty ? nil : try ProviderSignIn(answer)
    }

    public func cancel(_ handle: String) async { _ = try? await call(.cancel, ["handle": .string(handle)]) }

    public func renew(_ record: ProviderRecord, scopes: Set<String>, mayBeUsed: Bool) async -> RenewalOutcome {
        let fields: IdentityFields = [
            "record": .fields(record.fields), "mayBeUsed": .boolean(mayBeUsed), "scopes": .strings(scopes),
        ]
        do throws(DBusError) {
            let answer = try await send(.renew, fields)
            do throws(IdentityError) {
                return try RenewalOutcome(IdentityProtocol.fields(of: answer))
            } catch {
                // The response is malformed, so the outcome is unknown.
                return .unavailable(error, mayBeUsed: true)
            }
        } catch {
            return .unavailable(IdentityError(error), mayBeUsed: mayBeUsed || error.mayHaveArrived)
        }
    }

    public func end(_ record: ProviderRecord, keepsSession: Bool) async throws(IdentityError) {
        _ = try await call(.end, ["record": .fields(record.fields), "keepsSession": .boolean(keepsSession)])
    }

    private typealias Method = IdentityProtocol.Method

    private func call(_ method: Method, _ fields: IdentityFields) async throws(IdentityError) -> IdentityFields {
        let answer: [DBusValue]
        do throws(DBusError) {
            answer = try await send(method, fields)
        } catch {
            throw IdentityError(error)
        }
        return try IdentityProtocol.fields(of: answer)
    }

    /// A response contains tokens, which would be lost if the caller stopped waiting. So a cancelled task waits, too.
    private func send(_ method: Method, _ fields: IdentityFields) async throws(DBusError) -> [DBusValue] {
        try await connection.call(
            .methodCall(
                destination: IdentityProtocol.busName,
                path: IdentityProtocol.path,
                interface: IdentityProtocol.interface,
                member: method.rawValue,
                arguments: [.fields(fields)]
            ),
            timeout: IdentityProtocol.patience,
            isCancellable: false
        )
    }
}

extension DBusError {
    /// Whether the process may have carried out the call, although there is no response: it hung or crashed, or the bus
    /// did. The process responds with an error only before it asks the provider.
    fileprivate var mayHaveArrived: Bool {
        switch code {
        case .timedOut, .disconnected, .closed, .cancelled, .malformed: true
        default: false
        }
    }
}
