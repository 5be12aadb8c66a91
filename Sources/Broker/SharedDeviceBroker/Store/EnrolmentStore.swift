import Foundation
import GRDB

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
