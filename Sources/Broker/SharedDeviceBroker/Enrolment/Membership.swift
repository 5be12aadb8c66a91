package import Foundation

/// The device's membership in an organisation: an administrator of it has joined the device. Only its users sign in from then on.
package struct Membership: Sendable, Equatable {
    /// The organisation's name, where the managed configuration had one.
    package var organization: String?
    /// The organisation's directory, by the account of the administrator.
    package var tenantIdentifier: String
    package var joinedAt: Date
    /// The administrator's number in the audit log.
    package var subject: Int64?

    /// What becomes of it.
    package enum Change: Sendable, Equatable {
        case join(Membership)
        /// By the administrator of this number in the audit log.
        case leave(subject: Int64?)

        /// The enrolment afterwards.
        var outcome: Membership? {
            switch self {
            case .join(let enrolment): enrolment
            case .leave: nil
            }
        }

        /// As the log has it.
        func entry(at now: Date) -> AuditEntry {
            switch self {
            case .join(let enrolment):
                AuditEntry(
                    .joined,
                    at: now,
                    subject: enrolment.subject,
                    detail: "tenant \(enrolment.tenantIdentifier)"
                )
            case .leave(let subject): AuditEntry(.left, at: now, subject: subject)
            }
        }
    }
}
