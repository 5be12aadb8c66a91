import CNotify
import CNotify.Private
import NotifyCenter

@c @implementation public func notify_register_check(
    _ name: UnsafePointer<CChar>?,
    _ out_token: UnsafeMutablePointer<CInt>?
) -> UInt32 {
    register(out_token) { () throws(NotifyStatus) in try ProcessState.client.register(name, .check) }
}

@c @implementation public func notify_register_plain(
    _ name: UnsafePointer<CChar>?,
    _ out_token: UnsafeMutablePointer<CInt>?
) -> UInt32 {
    register(out_token) { () throws(NotifyStatus) in try ProcessState.client.register(name, .plain) }
}

@c @implementation public func notify_register_signal(
    _ name: UnsafePointer<CChar>?,
    _ sig: CInt,
    _ out_token: UnsafeMutablePointer<CInt>?
) -> UInt32 {
    register(out_token) { () throws(NotifyStatus) in
        try ProcessState.client.register(name, .signal) { () throws(NotifyStatus) in
            guard let sink = SignalSink(sig) else { throw .invalidSignal }
            return sink
        }
    }
}

@c @implementation public func notify_register_file_descriptor(
    _ name: UnsafePointer<CChar>?,
    _ notify_fd: UnsafeMutablePointer<CInt>?,
    _ flags: CInt,
    _ out_token: UnsafeMutablePointer<CInt>?
) -> UInt32 {
    register(out_token) { () throws(NotifyStatus) in
        guard let notify_fd else { throw .invalidFile }
        let reused = flags & NOTIFY_REUSE != 0 ? notify_fd.pointee : nil
        let (token, descriptor) = try register(name, .file, reusing: reused, ifUnknown: .invalidFile)
        notify_fd.pointee = descriptor
        return token
    }
}

@c @implementation public func notify_register_mach_port(
    _ name: UnsafePointer<CChar>?,
    _ notify_port: UnsafeMutablePointer<mach_port_t>?,
    _ flags: CInt,
    _ out_token: UnsafeMutablePointer<CInt>?
) -> UInt32 {
    register(out_token) { () throws(NotifyStatus) in
        guard let notify_port else { throw .invalidPort }
        let reused = flags & NOTIFY_REUSE != 0 ? CInt(bitPattern: notify_port.pointee) : nil
        let (token, descriptor) = try register(name, .port, reusing: reused, ifUnknown: .invalidPort)
        notify_port.pointee = mach_port_t(bitPattern: descriptor)
        return token
    }
}

/// Stores the token; `NOTIFY_TOKEN_INVALID` if `body` throws.
func register(_ out_token: UnsafeMutablePointer<CInt>?, _ body: () throws(NotifyStatus) -> CInt) -> UInt32 {
    NotifyStatus.of { () throws(NotifyStatus) in
        guard let out_token else { throw .nullInput }
        out_token.pointee = NOTIFY_TOKEN_INVALID
        out_token.pointee = try body()
    }
}

private func register(
    _ name: UnsafePointer<CChar>?,
    _ kind: RegistrationKind,
    reusing reused: CInt?,
    ifUnknown: NotifyStatus
) throws(NotifyStatus) -> (token: CInt, descriptor: CInt) {
    let client = ProcessState.client
    var pipe: DescriptorChannel?
    let token = try client.register(name, kind) { () throws(NotifyStatus) in
        if let reused {
            guard let known = client.channel(reused) else { throw ifUnknown }
            pipe = known
        } else {
            guard let made = DescriptorChannel() else { throw .failed }
            pipe = made
        }
        return pipe
    }
    guard let pipe else { throw .failed }
    return (token, pipe.descriptor)
}
