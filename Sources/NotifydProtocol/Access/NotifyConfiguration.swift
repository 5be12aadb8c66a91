/// What `/etc/notify.conf` says, for notifyd, and for the access rules of every process.
package struct NotifyConfiguration: Sendable, Hashable {
    package var rules = AccessRules()

    package init() {}

    /// The file of this machine; without it, or where it may not be trusted, an empty configuration.
    package static func ofMachine() -> NotifyConfiguration { NotifyConfiguration() }
}
