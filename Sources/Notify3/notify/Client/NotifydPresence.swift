/// What this process knows of who notifyd is. Pure: the bus's answers and reports come in.
struct NotifydPresence {
    enum Value: Equatable {
        /// The bus is being asked and has not answered, or is lost.
        case unknown
        /// It does not run. When it starts, the bus tells.
        case absent
        /// It runs, under this unique name.
        case present(String)
    }

    private(set) var value = Value.unknown
    /// How often something was learnt; a question bears the number of when it was asked.
    private(set) var question: UInt64 = 0

    /// The bus reports a change, or is lost (`unknown`).
    mutating func learn(_ value: Value) {
        self.value = value
        question += 1
    }

    /// The bus answers a question. What it has reported meanwhile is newer; and after an outage, the names are those of another bus.
    ///
    /// - Returns: whether the answer counts.
    mutating func learn(_ value: Value, answering question: UInt64) -> Bool {
        guard self.value == .unknown, question == self.question else { return false }
        learn(value)
        return true
    }
}
