import CNotify
import CNotify.Private
import NotifyCenter
import NotifydProtocol

// The first two may be called in a signal handler: nothing there locks, allocates or enters the kernel.

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
