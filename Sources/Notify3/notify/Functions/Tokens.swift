import CNotify
import NotifyCenter
import NotifydProtocol

@c @implementation public func notify_cancel(_ token: CInt) -> UInt32 {
    NotifyStatus.of { () throws(NotifyStatus) in try ProcessState.client.cancel(token) }
}

@c @implementation public func notify_suspend(_ token: CInt) -> UInt32 {
    NotifyStatus.of { () throws(NotifyStatus) in try liveClient(token).suspend(token) }
}

@c @implementation public func notify_resume(_ token: CInt) -> UInt32 {
    NotifyStatus.of { () throws(NotifyStatus) in try liveClient(token).resume(token) }
}

/// Switched off, tokens of names that leave the process are only good for being checked and cancelled.
private func liveClient(_ token: CInt) throws(NotifyStatus) -> NotifyClient {
    let client = ProcessState.client
    let registration = try client.registration(token)
    guard !ProcessState.isDisabled || NameScope(registration.name.rawValue) == .process else { throw .disabled }
    return client
}
