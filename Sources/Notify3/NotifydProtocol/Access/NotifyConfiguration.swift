/// What `/etc/notify.conf` says, for notifyd, and for the access rules of every process (notify(3), a.5).
package struct NotifyConfiguration: Sendable, Hashable {
    /// A name that is posted whenever something changes at a path.
    package struct Monitor: Sendable, Hashable {
        package var name: String
        package var path: String

        package init(name: String, path: String) {
            self.name = name
            self.path = path
        }
    }

    /// A name that stays without registrations.
    package struct PermanentName: Sendable, Hashable {
        package var name: String
        /// What its state is at first.
        package var state: UInt64

        package init(name: String, state: UInt64) {
            self.name = name
            self.state = state
        }
    }

    /// Who may use which names.
    package var rules = AccessRules()
    /// In the file's order.
    package var monitors: [Monitor] = []
    /// In the file's order.
    package var permanentNames: [PermanentName] = []

    package init() {}

    /// The file of this machine; without it, or where it may not be trusted, an empty configuration. Bad lines are passed over.
    package static func ofMachine() -> NotifyConfiguration {
        // What is wrong with it is notifyd's to say: once, instead of in every process.
        guard let bytes = try? ConfigurationFile.read(ConfigurationFile.ofMachine) else { return NotifyConfiguration() }
        return ConfigurationParser.parse(bytes).configuration
    }
}
