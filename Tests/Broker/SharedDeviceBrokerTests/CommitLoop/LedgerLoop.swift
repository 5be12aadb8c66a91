import Foundation
import SharedDevice
import SharedDeviceBroker

/// Anybody is who they say.
private struct AnybodyProvider: IdentityProvider {
    func authenticate(_ request: SignInRequest) async throws(IdentityError) -> AuthenticatedIdentity {
        AuthenticatedIdentity(account: Account(identifier: "\(request.username).t", username: request.username))
    }

    func issueToken(
        for identity: AuthenticatedIdentity,
        scopes: Set<String>
    ) async throws(IdentityError) -> AccessToken {
        AccessToken(value: "token", scopes: scopes, expiresAt: Date(timeIntervalSinceNow: 3600))
    }

    func endSession(for identity: AuthenticatedIdentity) async throws(IdentityError) {}
}

/// Signs in and out for ever; three apps ask at once, and clean up. What is answered is written: `held EPOCH APP`, `out EPOCH`,
/// `finished EPOCH APP`.
func keepLedger(in directory: String) async throws {
    let broker = try DeviceBroker(
        database: DeviceDatabase(directory: directory, firstEpoch: 0),
        provider: AnybodyProvider()
    )
    try await broker.apply(.modeChanged(.shared))
    while true {
        if await broker.current.account == nil {
            let request = SignInRequest(username: "torture", password: Secret("p"))
            let grant = try await broker.signIn(request, scopes: [], by: "a")
            report("held \(grant.epoch) a")
        }
        try await withThrowingTaskGroup(of: Void.self) { group in
            for app in ["a", "b", "c"] {
                group.addTask {
                    let answer = try await broker.session(for: app)
                    report("held \(answer.session.epoch) \(app)")
                }
            }
            try await group.waitForAll()
        }
        let session = try await broker.signOut(nil, cause: "the test").session
        report("out \(session)")
        for app in ["a", "b"] {
            for owed in try await broker.session(for: app).owed {
                try await broker.report(.finished, of: owed.epoch, by: app, detail: nil)
                report("finished \(owed.epoch) \(app)")
            }
        }
        // The third comes every other time only.
        guard session.isMultiple(of: 4) else { continue }
        for owed in try await broker.session(for: "c").owed {
            try await broker.report(.finished, of: owed.epoch, by: "c", detail: nil)
            report("finished \(owed.epoch) c")
        }
    }
}
