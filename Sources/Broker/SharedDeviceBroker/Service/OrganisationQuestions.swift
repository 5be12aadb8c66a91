import Identity

/// Asks the organisation's provider what the reducer wants to know, and brings the answers as events. Each question is a task of its own, so
/// that a provider that hangs holds up no other effect.
struct OrganisationQuestions: Sendable {
    /// `nil`: this broker has none, whatever the configuration says.
    let provider: (any OrganisationProvider)?
    let engine: BrokerEngine

    private static let absent = IdentityError(
        .providerMisconfigured,
        "this broker was started without a service that speaks to providers; install shared-device-identity"
    )

    /// Carries out one of the effects that are about the provider; others are none of its business.
    func ask(_ effect: Effect) {
        guard let provider else { return engine.submit(answerOfNobody(effect)) }
        Task { [engine] in
            if let event = await Self.event(effect, provider) { engine.submit(event) }
        }
    }

    private static func event(_ effect: Effect, _ provider: any OrganisationProvider) async -> Event? {
        switch effect {
        case .beginSignIn(let name, let start):
            return .signInBegan(name, await result { () throws(IdentityError) in try await provider.begin(start) })
        case .completeSignIn(let name, let handle, let query):
            let result = await result { () throws(IdentityError) -> ProviderSignIn? in
                try await provider.complete(handle, query: query)
            }
            return .signedIn(name, result)
        case .pollSignIn(let name, let handle):
            return .signedIn(name, await result { () throws(IdentityError) in try await provider.poll(handle) })
        case .cancelSignIn(let handle):
            await provider.cancel(handle)
            return nil
        case .renew(let number, let record, let scopes, let mayBeUsed):
            return .renewed(number, await provider.renew(record, scopes: scopes, mayBeUsed: mayBeUsed))
        case .tellSessionEnd(let number, let record, let keepsSession):
            do throws(IdentityError) {
                try await provider.end(record, keepsSession: keepsSession)
                return .sessionEndTold(number, nil)
            } catch {
                return .sessionEndTold(number, error)
            }
        default: return nil
        }
    }

    private static func result<Value>(
        _ question: () async throws(IdentityError) -> Value
    ) async -> Result<Value, IdentityError> {
        do throws(IdentityError) {
            return .success(try await question())
        } catch {
            return .failure(error)
        }
    }

    private func answerOfNobody(_ effect: Effect) -> Event {
        switch effect {
        case .beginSignIn(let name, _): .signInBegan(name, .failure(Self.absent))
        case .completeSignIn(let name, _, _), .pollSignIn(let name, _): .signedIn(name, .failure(Self.absent))
        case .renew(let number, _, _, _): .renewed(number, .misconfigured(Self.absent))
        // The provider may be there again after the next start.
        case .tellSessionEnd(let number, _, _):
            .sessionEndTold(number, IdentityError(.providerUnavailable, Self.absent.description))
        default: .time
        }
    }
}
