import notify

/// `-g` and `-s`, by a registration that lasts no longer, as Darwin's tool has it.
enum State {
    /// The 64 bits of a name.
    static func get(_ name: String) throws(Failure) -> UInt64 {
        var state: UInt64 = 0
        try withToken("read the state of", name) { notify_get_state($0, &state) }
        return state
    }

    /// Sets the 64 bits of a name.
    static func set(_ name: String, _ state: UInt64) throws(Failure) {
        try withToken("set the state of", name) { notify_set_state($0, state) }
    }

    private static func withToken(_ attempted: String, _ name: String, _ body: (CInt) -> UInt32) throws(Failure) {
        var token = NOTIFY_TOKEN_INVALID
        var status = notify_register_plain(name, &token)
        if status == UInt32(NOTIFY_STATUS_OK) {
            status = body(token)
            notify_cancel(token)
        }
        guard status == UInt32(NOTIFY_STATUS_OK) else { throw Failure(attempted, name, status: status) }
    }
}
