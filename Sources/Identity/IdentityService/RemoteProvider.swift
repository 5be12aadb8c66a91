package import DBusTransport
package import Identity

/// The organisation's provider, as another process speaks to it: `shared-device-identity`, which the bus starts with the first call.
///
/// That process has the right to the network, and reads what strangers send; the caller has neither. What it answers is checked like any message.
package final class RemoteProvider: OrganisationProvider {
    private let connection: DBusConnection

    /// - Parameter connection: the one that owns the broker's name: the process answers no other.
    package init(connection: DBusConnection) { self.connection = connection }

    package func begin(_ start: SignInStart) async throws(IdentityError) -> BegunSignIn {
        try BegunSignIn(await call(.begin, start.fields))
    }

    package func complete(_ handle: String, query: String) async throws(IdentityError) -> ProviderSignIn {
        let fields = IdentityFields(["handle": .string(handle), "query": .string(query)])
        return try ProviderSignIn(await call(.complete, fields))
    }

    package func poll(_ handle: String) async throws(IdentityError) -> ProviderSignIn? {
        let answer = try await call(.poll, IdentityFields(["handle": .string(handle)]))
        return answer.values.isEmpty ? nil : try ProviderSignIn(answer)
    }

    package func cancel(_ handle: String) async {
        _ = try? await call(.cancel, IdentityFields(["handle": .string(handle)]))
    }

    package func renew(_ record: ProviderRecord, scopes: Set<String>, mayBeUsed: Bool) async -> RenewalOutcome {
        let fields = IdentityFields([
            "record": record.fields.value, "mayBeUsed": .boolean(mayBeUsed),
            "scopes": .array(scopes.sorted().map { .string($0) }, of: "s"),
        ])
        do throws(DBusError) {
            let answer = try await send(.renew, fields)
            do throws(IdentityError) {
                return try RenewalOutcome(IdentityFields(answer))
            } catch {
                // It has answered, and nobody knows what.
                return .unavailable(error, mayBeUsed: true)
            }
        } catch {
            return .unavailable(IdentityError(error), mayBeUsed: mayBeUsed || error.mayHaveArrived)
        }
    }

    package func end(_ record: ProviderRecord, keepsSession: Bool) async throws(IdentityError) {
        let fields = IdentityFields(["record": record.fields.value, "keepsSession": .boolean(keepsSession)])
        _ = try await call(.end, fields)
    }

    private func call(
        _ method: IdentityProtocol.Method,
        _ fields: IdentityFields
    ) async throws(IdentityError)
        -> IdentityFields
    {
        let answer: [DBusValue]
        do throws(DBusError) {
            answer = try await send(method, fields)
        } catch {
            throw IdentityError(error)
        }
        return try IdentityFields(answer)
    }

    /// An answer has tokens, which are lost where nobody waits for them: a task that is cancelled waits all the same.
    private func send(
        _ method: IdentityProtocol.Method,
        _ fields: IdentityFields
    ) async throws(DBusError) -> [DBusValue] {
        try await connection.callUncancelled(
            .methodCall(
                destination: IdentityProtocol.busName,
                path: IdentityProtocol.path,
                interface: IdentityProtocol.interface,
                member: method.rawValue,
                arguments: [fields.value]
            ),
            timeout: IdentityProtocol.patience
        )
    }
}

extension DBusError {
    /// Whether the process may have carried out what it was asked, although there is no answer: it hung, or ended in the middle, or the bus did. A
    /// refusal is no answer of the provider's, and came before it was asked.
    fileprivate var mayHaveArrived: Bool {
        switch code {
        case .timedOut, .disconnected, .closed, .cancelled, .malformed: true
        default: false
        }
    }
}
