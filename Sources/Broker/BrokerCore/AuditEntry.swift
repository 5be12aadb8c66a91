package import FoundationEssentials

/// An entry of the audit log. On the disk it names no person: the account is a number, which resolves to a name only
/// while the account is on the device.
package struct AuditEntry: Sendable, Equatable {
    /// Databases and scripts contain the raw values, so their meaning never changes.
    package enum Event: String, Sendable, CaseIterable {
        case signedIn = "signed-in"
        case signedOut = "signed-out"
        /// The screen was locked: only the session's person can continue.
        case locked
        case unlocked
        case modeChanged = "mode-changed"
        /// All apps were told to ask for the state.
        case announced
        /// An app received the session's account, and may hold its data from here on.
        case held
        /// An app asked, and was told that it owes the cleanup.
        case told
        case begun
        case finished
        case failed
        case waived
        /// An app was late with its cleanup: it was stopped, and its data deleted.
        case enforced
        /// The enforcement failed.
        case notEnforced = "not-enforced"
        /// An app ended before it reported the end of a cleanup, or its receipt does not count for that reason.
        case interrupted
        case woken
        /// No app owes the session's cleanup any more.
        case completed
        /// The policy no longer waits for the session's cleanup.
        case expired
        /// An app reported on its cleanup more often than the log accepts.
        case reported
        case refused
        /// A sign-out ended the login session at the seat, or failed to.
        case loginEnded = "login-ended"
        case joined
        case left
    }

    package var event: Event
    package var at: Date
    package var session: UInt64?
    package var app: String?
    /// The user that runs the app.
    package var user: UInt32?
    /// The account's identifier, in lower case. The log stores a number instead.
    package var account: String?
    /// The account's name, by which the number resolves to the person while the account is on the device.
    package var accountName: String?
    /// Further details for people. For `refused`, it begins with the error's code.
    package var detail: String?
}

extension AuditEntry {
    package init(_ event: Event, at: Date) { self.init(event: event, at: at) }
}

/// Criteria for entries. `nil` means any.
package struct AuditFilter: Sendable {
    /// Only entries after this number.
    package var after: Int64?
    package var since: Date?
    package var session: UInt64?
    package var app: String?
    package var event: AuditEntry.Event?
    /// Only this many of the last entries that match the other criteria.
    package var last: Int?
    /// Only this many of the first entries that match the other criteria. Not together with `last`.
    package var first: Int?
}

extension AuditFilter {
    package init(last: Int? = nil) { self.init(after: nil, last: last) }
}

/// An entry as it is read from the log.
package struct AuditLine: Sendable {
    /// The entry's number, in ascending order.
    package let sequence: Int64
    package let entry: AuditEntry
    /// The name of the entry's account, or “account #3” if it is no longer on the device; `nil` if there is none.
    package let account: String?

    package init(sequence: Int64, entry: AuditEntry, account: String?) {
        (self.sequence, self.entry, self.account) = (sequence, entry, account)
    }
}
