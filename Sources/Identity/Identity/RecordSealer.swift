/// Makes a provider's record unreadable for the disk, and readable again.
package protocol RecordSealer: Sendable {
    /// - Throws: ``RecordUnreadable``, where the record is too long.
    func seal(_ record: ProviderRecord, for use: RecordUse) throws(RecordUnreadable) -> [UInt8]

    /// - Parameter use: what it was sealed for. It opens for nothing else.
    /// - Throws: ``RecordUnreadable``: the bytes are damaged, were sealed for something else, or by another key.
    func open(_ sealed: [UInt8], for use: RecordUse) throws(RecordUnreadable) -> ProviderRecord
}

/// What a record is kept for.
package enum RecordUse: Sendable, Hashable {
    /// The open session: its number, who signed the person in, and the account.
    case session(epoch: UInt64, issuer: String, account: String)
    /// The provider is to be told that the session is over.
    case ending(number: UInt64)
}

/// A sealed record that cannot be made or opened.
package struct RecordUnreadable: Error, Sendable, Hashable, CustomStringConvertible {
    package let description: String

    package init(_ description: String) { self.description = description }
}
