/// notifyd's presence, as far as this process knows. Pure: it takes the bus's responses and reports.
struct NotifydPresence {
    enum Value: Equatable {
        /// The bus has not responded yet, or is lost.
        case unknown
        /// notifyd does not run. The bus reports its start.
        case absent
        /// notifyd runs, under this unique name.
        case present(String)
    }

    private(set) var value = Value.unknown
    /// Increases with each ``learn(_:)``. A response counts only if the number is still that of its request.
    private(set) var question: UInt64 = 0

    /// Takes a change that the bus has reported; `unknown` if the bus is lost.
    mutating func learn(_ value: Value) {
        self.value = value
        question += 1
    }

    /// Takes the bus's response to a request. The response does not count if the bus has reported a change since the
    /// request, or was lost since: the unique names of another bus have other owners.
    ///
    /// - Returns: Whether the response counts.
    mutating func learn(_ value: Value, answering question: UInt64) -> Bool {
        guard self.value == .unknown, question == self.question else { return false }
        learn(value)
        return true
    }
}
