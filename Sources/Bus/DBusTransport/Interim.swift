// In place of what the connection's new form brings.
extension DBusConnection {
    package func queue(_ message: borrowing DBusMessage) throws(DBusError) {
        let socket = try core.socket("send a message")
        let (_, standing) = try socket.send(message, attempted: "send a message")
        if standing.hasUnsentMessages || !standing.isConnected { core.event.signal() }
    }

    package func keepMatch(
        _ rule: MatchRule,
        fallback: MatchRule? = nil,
        settled: @escaping @Sendable (DBusError?) -> Void
    ) -> MatchRuleLease {
        core.retain(rule, fallback: fallback, waiter: settled)
        return MatchRuleLease(rule, core)
    }

    package func flush() throws(DBusError) { try synchronize() }
}

extension DBusConnection {
    package func askCredentials(
        of name: String,
        answered: @escaping @Sendable (Result<(userID: UInt32, groupIDs: [UInt32]), DBusError>) -> Void
    ) {
        let attempted = "identify \(name)"
        core.start(BusDaemon.call("GetConnectionCredentials", [.string(name)]), attempted: attempted) { answer in
            answered(
                answer.flatMap { values in
                    guard let fields = values.first?.fieldsValue,
                        let user = fields["UnixUserID"]?.unsignedValue.flatMap(UInt32.init(exactly:))
                    else {
                        return .failure(
                            DBusError(.malformed, message: "the bus does not say whose it is", attempted: attempted)
                        )
                    }
                    var groups: [UInt32] = []
                    if case .array(let elements, "u") = fields["UnixGroupIDs"] {
                        groups = elements.compactMap { $0.unsignedValue.flatMap(UInt32.init(exactly:)) }
                    }
                    return .success((user, groups.isEmpty ? UserGroups.of(user) : groups))
                }
            )
        }
    }
}
