import CNotify
import CNotify.Private

@c @implementation public func notify_post(_ name: UnsafePointer<CChar>?) -> UInt32 {
    NotifyStatus.of { () throws(NotifyStatus) in try ProcessState.client.post(name) }
}

@c @implementation public func notify_simple_post(_ name: UnsafePointer<CChar>?) -> UInt32 { notify_post(name) }
