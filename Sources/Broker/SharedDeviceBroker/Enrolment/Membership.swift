package import Foundation
import GRDB

/// The device's membership in an organisation. One of its administrators has joined the device; only its users sign in from then on.
package struct Membership: Sendable, Equatable {
    /// The organisation's name, where the managed configuration had one.
    package var organization: String?
    /// The organisation's directory, by the account of the administrator.
    package var tenantIdentifier: String
    package var joinedAt: Date
    /// The administrator's number in the audit log.
    package var subject: Int64?

    /// A change of the membership.
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

/// The row of the device's enrolment, within the caller's transaction.
enum EnrolmentStore {
    static func fetch(_ db: Database, path: String) throws -> Membership? {
        guard let row = try Row.fetchOne(db, sql: "SELECT * FROM enrolment WHERE id = 1") else { return nil }
        let tenant: String? = row.value("tenant_identifier")
        let joined: Double? = row.value("joined_at")
        guard let tenant, let joined else {
            throw StoreError.damaged(
                attempted: "read the device's enrolment",
                message: "\(path): its row makes no sense"
            )
        }
        return Membership(
            organization: row.value("organization"),
            tenantIdentifier: tenant,
            joinedAt: Date(timeIntervalSince1970: joined),
            subject: row.value("subject")
        )
    }

    static func apply(_ change: Membership.Change, to db: Database) throws {
        switch change {
        case .leave:
            try db.execute(sql: "DELETE FROM enrolment")
        case .join(let enrolment):
            try db.execute(
                sql: """
                    INSERT OR REPLACE INTO enrolment (id, organization, tenant_identifier, joined_at, subject)
                    VALUES (1, ?, ?, ?, ?)
                    """,
                arguments: [
                    enrolment.organization, enrolment.tenantIdentifier, enrolment.joinedAt.timeIntervalSince1970,
                    enrolment.subject,
                ]
            )
        }
    }
}
