/// What is in force, and what is wrong with the file, if anything. Each update says all of it, so that who reads only the
/// latest has missed nothing.
package struct ManagedConfigurationUpdate: Sendable, Equatable {
    /// The last valid content, which holds as long as the file is not valid; `nil` where none was valid since the watch
    /// began. Then the mode that the store has holds.
    package let inForce: ManagedConfigurationFile.Content?
    /// Why the file as it is now is not in force; `nil` where it is.
    package let problem: ManagedConfigurationError?
}

/// Decides which readings of the file are news. Pure.
struct ManagedConfigurationMonitor: Sendable {
    private var latest: ManagedConfigurationUpdate?

    /// The update to announce for this reading of the file; `nil` where it says nothing new.
    ///
    /// - Parameter watchProblem: Why later changes may go unseen.
    mutating func fileWasRead(
        _ reading: Result<ManagedConfigurationFile.Content, ManagedConfigurationError>,
        watchProblem: ManagedConfigurationError? = nil
    ) -> ManagedConfigurationUpdate? {
        let update =
            switch reading {
            case .success(let content): ManagedConfigurationUpdate(inForce: content, problem: watchProblem)
            case .failure(let problem): ManagedConfigurationUpdate(inForce: latest?.inForce, problem: problem)
            }
        guard update != latest else { return nil }
        latest = update
        return update
    }
}
