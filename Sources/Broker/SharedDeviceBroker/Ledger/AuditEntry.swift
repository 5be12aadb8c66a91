package import Foundation

/// One line of the audit log: what happened, when, in which session, by which app. It names no person: `subject` is the account's number,
/// which leads to a name only as long as the account is on the device.
package struct AuditEntry: Sendable, Equatable {
    /// What happened. The raw values are in databases and in scripts: none of them changes its meaning.
    package enum Event: String, Sendable, CaseIterable {
        case signedIn = "signed-in"
        case signedOut = "signed-out"
        case modeChanged = "mode-changed"
        /// All apps were told to ask.
        case announced
        /// An app was given the account of the session, and may hold its data from here on.
        case held
        /// An app has asked, and was told that it owes the cleanup.
        case told
        case begun
        case finished
        case failed
        case waived
        /// An app ended before it had reported the end of a cleanup.
        case interrupted
        /// The bus was asked to start an app.
        case woken
        /// Nobody owes anything of the session any more.
        case completed
        /// The policy waits no longer for the session's cleanup.
        case expired
        /// A request was refused.
        case refused
        /// The device joined its organisation.
        case joined
        /// The device left its organisation.
        case left
    }

    package var event: Event
    package var at: Date
    /// The session's epoch.
    package var session: UInt64?
    /// The app's identifier.
    package var app: String?
    /// The account's number.
    package var subject: Int64?
    /// What else there is to say, for people; for `refused`, it begins with the error's code.
    package var detail: String?

    package init(
        _ event: Event,
        at: Date,
        session: UInt64? = nil,
        app: String? = nil,
        subject: Int64? = nil,
        detail: String? = nil
    ) {
        self.event = event
        self.at = at
        self.session = session
        self.app = app
        self.subject = subject
        self.detail = detail
    }
}
