import Basics
import CNotify
import CNotify.Private
import DBus
import Glibc
import NotifyCenter
import Synchronization

@c @implementation public func notify_set_options(_ opts: UInt32) {
    if opts & UInt32(NOTIFY_OPT_DISABLE) != 0 { ProcessState.isOff.store(true, ordering: .relaxed) }
    if opts & UInt32(NOTIFY_OPT_ENABLE) != 0 { ProcessState.isOff.store(false, ordering: .relaxed) }
}

@c @implementation public func notify_monitor_file(
    _ token: CInt,
    _ path: UnsafeMutablePointer<CChar>?,
    _ flags: CInt
) -> UInt32 {
    NotifyStatus.of { () throws(NotifyStatus) in
        let client = ProcessState.client
        _ = try client.registration(token)
        // notifyd lists the path as text.
        guard let path, let text = String(validatingCString: path) else { throw .invalidRequest }
        try client.monitor(token, text, UInt32(bitPattern: flags))
    }
}

@c @implementation public func notify_get_event(
    _ token: CInt,
    _ ev: UnsafeMutablePointer<CInt>?,
    _ buf: UnsafeMutablePointer<CChar>?,
    _ len: UnsafeMutablePointer<CInt>?
) -> UInt32 {
    ev?.pointee = 0
    len?.pointee = 0
    return UInt32(NOTIFY_STATUS_OK)
}

@c @implementation public func notify_suspend_pid(_ pid: CInt) -> UInt32 { callForProcess(.suspendProcess, pid) }

@c @implementation public func notify_resume_pid(_ pid: CInt) -> UInt32 { callForProcess(.resumeProcess, pid) }

private func callForProcess(_ method: NotifydProtocol.Method, _ pid: CInt) -> UInt32 {
    NotifyStatus.of { () throws(NotifyStatus) in
        guard !ProcessState.isDisabled else { throw .disabled }
        guard let process = UInt32(exactly: pid), process > 0 else { throw .invalidRequest }
        _ = try ProcessState.client.call(method, [.uint32(process)])
    }
}

@c @implementation public func notify_dump_status(_ filepath: UnsafePointer<CChar>?) -> UInt32 {
    NotifyStatus.of { () throws(NotifyStatus) in
        guard let filepath else { throw .nullInput }
        guard !ProcessState.isDisabled else { throw .disabled }
        // One deadline for everything that this call waits for.
        let deadline = ContinuousClock.now + NotifyClient.patience
        let text = try ProcessState.client.status(by: deadline)
        // A pipe without a reader must not block the caller.
        let file = open(filepath, O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_CLOEXEC, 0o644)
        guard file >= 0 else { throw .failed }
        defer { close(file) }
        guard writeAll(text, to: file, waits: true, until: deadline) == 0 else { throw .failed }
    }
}

@c @implementation public func _notify_fork_child() { ProcessState.checkFork() }
