/// Another account is on the device than this app was told before, or the same one in another session.
///
/// Do, in this order: stop work under way, delete the data of ``previousAccounts`` on disk and on the screen, call
/// ``SharedDeviceApplication/cleanupDone(_:detail:)``, and only then show or load anything for ``current``. Until `cleanupDone` the
/// change is reported again at each start.
public struct AccountChange: Sendable {
    let stale: [SessionRecord.Session]
    /// Who is signed in now; `nil` for nobody.
    public let current: Account?
    /// The device's change counter at ``current``: a later change has a larger one.
    public let epoch: UInt64

    /// Whose data is to go; usually one account, more where cleanups were missed, none at a first sign-in. It may name
    /// ``current`` too: somebody may have used the device in between, and the new session starts clean.
    public var previousAccounts: [Account] {
        stale.reduce(into: []) { accounts, session in
            if !accounts.contains(session.account) { accounts.append(session.account) }
        }
    }

    /// The account that this app last worked for, whose data is to go; `nil` where there is nothing to clean up. It is ``current`` only
    /// where no other is left: who looks at nothing else must hear of each other account.
    public var previous: Account? { (stale.last { $0.account != current } ?? stale.last)?.account }
}

extension AccountChange {
    /// The part of this change that concerns the data of `account`; `nil` where none of it is to go.
    package func part(of account: Account) -> AccountChange? {
        let sessions = stale.filter { $0.account == account }
        return sessions.isEmpty ? nil : AccountChange(stale: sessions, current: current, epoch: epoch)
    }
}

/// What an app is told when it asks for the current account.
package struct AccountReport: Sendable {
    /// Who is signed in, and whose data is to go.
    package let change: AccountChange
    /// The account that was reported before.
    package let previous: Account?
}
