package import SharedDevice

extension Account {
    /// Whether `identifier` names this account. As in MSAL the case does not count: the same directory writes its ids now
    /// in capitals, now in small letters.
    package func hasIdentifier(_ identifier: String) -> Bool {
        self.identifier.lowercased() == identifier.lowercased()
    }
}
