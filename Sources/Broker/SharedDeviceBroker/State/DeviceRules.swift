/// Who may sign in at all, as the administrator and the device's enrolment have it.
package struct DeviceRules: Sendable, Equatable {
    /// Whether the device has to be joined before anybody signs in.
    package var requiresJoin: Bool
    /// Whether it is joined.
    package var isJoined: Bool
    /// Whose users may sign in; `nil` for anybody's. In whatever case.
    package var tenantIdentifier: String?

    package init(requiresJoin: Bool = false, isJoined: Bool = false, tenantIdentifier: String? = nil) {
        self.requiresJoin = requiresJoin
        self.isJoined = isJoined
        self.tenantIdentifier = tenantIdentifier
    }

    /// Whether anybody may sign in.
    ///
    /// - Throws: ``DeviceRefusal``.
    package func check() throws(DeviceRefusal) {
        if requiresJoin, !isJoined { throw .deviceNotJoined }
    }

    /// Whether users of this tenant may sign in.
    ///
    /// - Throws: ``DeviceRefusal``.
    package func check(tenant: String) throws(DeviceRefusal) {
        try check()
        if let tenantIdentifier, tenantIdentifier.lowercased() != tenant.lowercased() { throw .tenantMismatch }
    }
}
