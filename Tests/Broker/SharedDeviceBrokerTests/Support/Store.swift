import DeviceStorage
import Foundation
import NotifyCenterTestKit
import SharedDevice

@testable import BrokerCore
@testable import SharedDeviceBroker

extension DeviceDatabase {
    func save(_ device: DeviceState) throws(StoreError) {
        var batch = Batch(number: 1)
        batch.device = device
        try DeviceStore(database: self).commit(batch)
    }

    func device() throws(StoreError) -> DeviceState { try DeviceStore.read(self).device }

    func append(_ entries: [AuditEntry]) throws(StoreError) {
        var batch = Batch(number: 1)
        batch.log = entries
        try DeviceStore(database: self).commit(batch)
    }
}

extension DeviceStore {
    func save(_ ledger: inout CleanupLedger, device: DeviceState? = nil, log: [AuditEntry] = []) throws(StoreError) {
        var batch = Batch(number: 1)
        batch.add(&ledger)
        batch.device = device
        batch.log = log
        try commit(batch)
        ledger.unsaved.saved()
    }
}

extension TemporaryDirectory {
    /// Executes a statement without constraints, as if the file was edited by hand.
    func sql(_ statement: String) throws {
        try SQLiteConnection(path: databaseFile).execute("PRAGMA ignore_check_constraints = ON; \(statement)")
    }
}
