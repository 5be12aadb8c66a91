import CNotify

@c @implementation public func notify_set_state(_ token: CInt, _ state64: UInt64) -> UInt32 {
    NotifyStatus.of { () throws(NotifyStatus) in try ProcessState.client.setState(token, state64) }
}

@c @implementation public func notify_get_state(_ token: CInt, _ state64: UnsafeMutablePointer<UInt64>?) -> UInt32 {
    NotifyStatus.of { () throws(NotifyStatus) in
        guard let state64 else { throw .nullInput }
        state64.pointee = try ProcessState.client.state(token)
    }
}
