import Basics
import BrokerCore
import DeviceStorage
import FoundationEssentials
import Identity
import SharedDevice

/// The stored data of the organisation's provider: the open session's record, and the ends of sessions that the
/// provider does not know of yet. Records are sealed; without a key, none is stored.
struct ProviderRows: Sendable {
    let sealer: RecordVault?

    // MARK: Reading

    /// - Parameter content: Already contains the device's row. The record of another session is not opened.
    func read(_ db: SQLiteConnection, at now: Moment, into content: inout StoredContent) throws {
        let epoch = content.device.epoch
        if let account = content.device.account {
            let selection = "SELECT * FROM provider_session WHERE epoch = ?"
            let found = try db.row(selection, epoch) { row in
                session(row, account: account.identifier, epoch: epoch, &content.recordProblems)
            }
            content.provider = found ?? nil
        }
        let ends = try db.rows("SELECT * FROM provider_end", as: { end($0, at: now, &content.recordProblems) })
        for (number, entry) in ends.compactMap({ $0 }) { content.outbox[number] = entry }
        let word = try db.row("SELECT * FROM device_compliance WHERE id = 1") { row -> ComplianceWord? in
            guard let issuer: String = row["issuer"], let isCompliant: Bool = row["compliant"],
                let said: Date = row["said_at"]
            else { return nil }
            return ComplianceWord(issuer: issuer, isCompliant: isCompliant, date: said)
        }
        content.compliance = word ?? nil
    }

    private func session(
        _ row: borrowing SQLiteRow,
        account: String,
        epoch: UInt64,
        _ problems: inout [String]
    ) -> ProviderSession? {
        guard let issuer: String = row["issuer"], let client: String = row["client"],
            let checked: Date = row["checked_at"], let proved: Date = row["proved_at"],
            let began: Date = row["began_at"], let needsPerson: Bool = row["needs_person"],
            let isSettled: Bool = row["settled"]
        else {
            problems.append("the provider's row makes no sense; tokens need a new sign-in")
            return nil
        }
        let sealed: [UInt8]? = row["record"]
        let use = RecordUse.session(epoch: epoch, issuer: issuer, account: account)
        return ProviderSession(
            issuer: issuer,
            client: client,
            record: sealed.flatMap { open($0, use, &problems) },
            checkedAt: checked,
            provedAt: proved,
            beganAt: began,
            needsPerson: needsPerson,
            isSettled: isSettled
        )
    }

    private func end(
        _ row: borrowing SQLiteRow,
        at now: Moment,
        _ problems: inout [String]
    ) -> (UInt64, ProviderOutbox.Entry)? {
        guard let number: UInt64 = row["number"], let added: Date = row["added_at"],
            let tries: Int = row["tries"], tries >= 0, let sealed: [UInt8] = row["record"],
            let keepsSession: Bool = row["keeps_session"], let record = open(sealed, .ending(number: number), &problems)
        else { return nil }
        let entry = ProviderOutbox.Entry(
            record: record,
            keepsSession: keepsSession,
            addedAt: added,
            tries: tries,
            next: now.uptime
        )
        return (number, entry)
    }

    private func open(_ sealed: [UInt8], _ use: RecordUse, _ problems: inout [String]) -> ProviderRecord? {
        guard let sealer else {
            problems.append("a provider's record cannot be opened without its key; tokens need a new sign-in")
            return nil
        }
        do throws(Problem) {
            return try sealer.open(sealed, for: use)
        } catch {
            problems.append(error.description)
            return nil
        }
    }

    // MARK: Writing

    func save(_ batch: Batch, to db: SQLiteConnection) throws {
        if let session = batch.provider { try save(session, batch.providerOwner, to: db) }
        if let word = batch.compliance {
            try db.run(
                "INSERT OR REPLACE INTO device_compliance (id, issuer, compliant, said_at) VALUES (1, ?, ?, ?)",
                word.issuer,
                word.isCompliant,
                word.date
            )
        }
        for (number, entry) in batch.outbox {
            try db.run("DELETE FROM provider_end WHERE number = ?", number)
            guard let entry, let sealer else { continue }
            try db.run(
                "INSERT INTO provider_end (number, record, added_at, tries, keeps_session) VALUES (?, ?, ?, ?, ?)",
                number,
                try sealer.seal(entry.record, for: .ending(number: number)),
                entry.addedAt,
                entry.tries,
                entry.keepsSession
            )
        }
    }

    private func save(_ session: ProviderSession?, _ owner: DeviceState?, to db: SQLiteConnection) throws {
        // Deletes the record of any other session, too: there is one at a time.
        try db.run("DELETE FROM provider_session")
        guard let session, let owner, let account = owner.account else { return }
        let use = RecordUse.session(epoch: owner.epoch, issuer: session.issuer, account: account.identifier)
        try db.run(
            """
            INSERT INTO provider_session (epoch, issuer, client, record, checked_at, proved_at, began_at, needs_person, settled)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
            """,
            owner.epoch,
            session.issuer,
            session.client,
            try session.record.flatMap { record in try sealer.map { try $0.seal(record, for: use) } },
            session.checkedAt,
            session.provedAt,
            session.beganAt,
            session.needsPerson,
            session.isSettled
        )
    }
}
