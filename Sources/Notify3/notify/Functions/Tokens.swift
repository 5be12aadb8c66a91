import CNotify
import CNotify.Private
import NotifyCenter

@c @implementation public func notify_post(_ name: UnsafePointer<CChar>?) -> UInt32 {
    NotifyStatus.of { () throws(NotifyStatus) in try ProcessState.client.post(name) }
}

@c @implementation public func notify_simple_post(_ name: UnsafePointer<CChar>?) -> UInt32 { notify_post(name) }

// notify_check and notify_is_valid_token may be called in a signal handler: they do not lock, allocate or enter the
// kernel.

@c @implementation public func notify_check(_ token: CInt, _ check: UnsafeMutablePointer<CInt>?) -> UInt32 {
    guard let check else { return UInt32(NOTIFY_STATUS_NULL_INPUT) }
    guard let wasPosted = TokenTable.check(token) else { return UInt32(NOTIFY_STATUS_INVALID_TOKEN) }
    check.pointee = wasPosted ? 1 : 0
    return UInt32(NOTIFY_STATUS_OK)
}

@c @implementation public func notify_is_valid_token(_ val: CInt) -> Bool { TokenTable.isValid(val) }

@c @implementation public func notify_peek(_ token: CInt, _ val: UnsafeMutablePointer<UInt32>?) -> UInt32 {
    NotifyStatus.of { () throws(NotifyStatus) in
        guard let val else { throw .nullInput }
        guard let count = TokenTable.count(token) else { throw .invalidToken }
        let registration = try ProcessState.client.registration(token)
        guard registration.kind == .check || NameScope(registration.name.rawValue) == .process else {
            throw .invalidRequest
        }
        val.pointee = UInt32(truncatingIfNeeded: count)
    }
}

@c @implementation public func notify_set_state(_ token: CInt, _ state64: UInt64) -> UInt32 {
    NotifyStatus.of { () throws(NotifyStatus) in try ProcessState.client.setState(token, state64) }
}

@c @implementation public func notify_get_state(_ token: CInt, _ state64: UnsafeMutablePointer<UInt64>?) -> UInt32 {
    NotifyStatus.of { () throws(NotifyStatus) in
        guard let state64 else { throw .nullInput }
        state64.pointee = try ProcessState.client.state(token)
    }
}

@c @implementation public func notify_cancel(_ token: CInt) -> UInt32 {
    NotifyStatus.of { () throws(NotifyStatus) in try ProcessState.client.cancel(token) }
}

@c @implementation public func notify_suspend(_ token: CInt) -> UInt32 {
    NotifyStatus.of { () throws(NotifyStatus) in try liveClient(token).suspend(token) }
}

@c @implementation public func notify_resume(_ token: CInt) -> UInt32 {
    NotifyStatus.of { () throws(NotifyStatus) in try liveClient(token).resume(token) }
}

/// Returns the client for work on a token. After `NOTIFY_OPT_DISABLE` a program may only check and cancel tokens,
/// except those of `self.` names.
private func liveClient(_ token: CInt) throws(NotifyStatus) -> NotifyClient {
    let client = ProcessState.client
    let registration = try client.registration(token)
    guard !ProcessState.isDisabled || NameScope(registration.name.rawValue) == .process else { throw .disabled }
    return client
}
