/// The parts of an account's identity.
public final class MSALAccountId: Sendable, Hashable {
    /// ``objectId`` and ``tenantId``, joined by a dot.
    public let identifier: String
    /// The person within the organisation.
    public let objectId: String
    /// The organisation; empty where the identity names none.
    public let tenantId: String

    init(_ identifier: String) {
        self.identifier = identifier
        let dot = identifier.firstIndex(of: ".")
        objectId = String(identifier[..<(dot ?? identifier.endIndex)])
        tenantId = dot.map { String(identifier[identifier.index(after: $0)...]) } ?? ""
    }

    /// Whether both have the same ``identifier``.
    public static func == (left: MSALAccountId, right: MSALAccountId) -> Bool { left.identifier == right.identifier }

    /// Feeds what `==` compares.
    public func hash(into hasher: inout Hasher) { hasher.combine(identifier) }
}
