/// Which app a caller is.
package struct AppIdentity: Sendable, Hashable {
    /// The app's name in the ledger and in the log.
    package let identifier: String

    package init(identifier: String) {
        self.identifier = identifier
    }
}
