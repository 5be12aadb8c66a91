/// Says when the input devices of a graphical session were used, but neither which device nor which key.
package protocol SeatInput: Sendable {
    /// The interface that the session offers, for the log.
    var name: String { get }

    /// Waits until there has been input after `moment`. Returns at once if there has been some already. The clock stops
    /// while the device sleeps, as the idle times of X and Mutter do.
    ///
    /// - Throws: ``SeatInputError`` when the session is gone; `CancellationError`.
    func next(after moment: SuspendingClock.Instant) async throws
}

/// The session offers no input, or no longer: the operation, the cause and the remedy.
package struct SeatInputError: Error, CustomStringConvertible {
    package enum Kind: Sendable {
        /// The session has no interface that this program knows. Only an administrator can change that.
        case unsupported
        /// The session does not respond, or has ended.
        case lost
    }

    package let kind: Kind
    package let description: String

    package init(_ kind: Kind, _ description: String) { (self.kind, self.description) = (kind, description) }
}
