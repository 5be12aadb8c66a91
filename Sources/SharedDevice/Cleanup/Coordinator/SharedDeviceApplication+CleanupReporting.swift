import FoundationEssentials

extension SharedDeviceApplication: CleanupReporting {
    // To be replaced by the directory that the initializer was given.
    package var stateDirectory: String {
        let environment = ProcessInfo.processInfo.environment
        let base = environment["XDG_STATE_HOME"].flatMap { $0.isEmpty ? nil : $0 }
        return (base ?? "\(environment["HOME"] ?? ".")/.local/state") + "/" + identifier
    }

    // To be replaced by the report to the broker.
    package func cleanupBegan(_ change: AccountChange) async throws(SharedDeviceError) {}

    // To be replaced by the report to the broker.
    package func cleanupDone(_ change: AccountChange, detail: String?) async throws(SharedDeviceError) {
        try await cleanupDone(change)
    }

    // To be replaced by the report to the broker.
    package func cleanupFailed(_ change: AccountChange, reason: String) async throws(SharedDeviceError) {}
}
