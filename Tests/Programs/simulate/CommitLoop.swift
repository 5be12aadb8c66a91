import DeviceConfiguration
import DeviceStorage
import Glibc
import SharedDevice
import SharedDeviceBroker

/// Bypasses stdio, whose buffered lines would be lost when the process is killed.
func report(_ text: String) {
    let line = Array("\(text)\n".utf8)
    guard write(STDOUT_FILENO, line, line.count) == line.count else { exit(1) }
}

/// Signs one account in and out of the store in a directory for ever, and prints each epoch once it is committed. A test
/// kills this process at a time of its choice.
func commitForEver(in directory: String) throws {
    let store = try DeviceStore(database: DeviceDatabase(directory: directory, firstEpoch: 0))
    var state = try store.load(at: .now).device
    func commit(_ account: Account?) throws {
        state = state.next(mode: .shared, account: account)
        var batch = Batch(number: state.epoch)
        batch.device = state
        try store.commit(batch)
        report("\(state.epoch)")
    }
    if state.mode == .personal { try commit(nil) }
    while true {
        try commit(state.account == nil ? Account(identifier: "torture.tenant", username: "torture-user") : nil)
    }
}
