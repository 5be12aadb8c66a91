/// Whom a ``CleanupCoordinator`` tells how a cleanup goes.
package protocol CleanupReporting: Sendable {
    /// Where the app keeps what must outlast its user data, the journal among it.
    var stateDirectory: String { get }

    /// The cleanup begins.
    func cleanupBegan(_ change: AccountChange) async throws(SharedDeviceError)

    /// All data of the change's previous accounts is gone; `detail` says how much it was.
    func cleanupDone(_ change: AccountChange, detail: String?) async throws(SharedDeviceError)

    /// The data could not be removed, for this reason. It is tried again.
    func cleanupFailed(_ change: AccountChange, reason: String) async throws(SharedDeviceError)
}
