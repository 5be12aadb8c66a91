public import CNotify
public import CNotify.Private

@c @implementation public func notify_post(_ name: UnsafePointer<CChar>?) -> UInt32 { 1_000_000 }

@c @implementation public func notify_register_check(
    _ name: UnsafePointer<CChar>?,
    _ out_token: UnsafeMutablePointer<CInt>?
) -> UInt32 { 1_000_000 }

@c @implementation public func notify_register_signal(
    _ name: UnsafePointer<CChar>?,
    _ sig: CInt,
    _ out_token: UnsafeMutablePointer<CInt>?
) -> UInt32 { 1_000_000 }

@c @implementation public func notify_register_mach_port(
    _ name: UnsafePointer<CChar>?,
    _ notify_port: UnsafeMutablePointer<mach_port_t>?,
    _ flags: CInt,
    _ out_token: UnsafeMutablePointer<CInt>?
) -> UInt32 { 1_000_000 }

@c @implementation public func notify_register_file_descriptor(
    _ name: UnsafePointer<CChar>?,
    _ notify_fd: UnsafeMutablePointer<CInt>?,
    _ flags: CInt,
    _ out_token: UnsafeMutablePointer<CInt>?
) -> UInt32 { 1_000_000 }

@c @implementation public func notify_check(_ token: CInt, _ check: UnsafeMutablePointer<CInt>?) -> UInt32 { 1_000_000 }
@c @implementation public func notify_cancel(_ token: CInt) -> UInt32 { 1_000_000 }
@c @implementation public func notify_suspend(_ token: CInt) -> UInt32 { 1_000_000 }
@c @implementation public func notify_resume(_ token: CInt) -> UInt32 { 1_000_000 }
@c @implementation public func notify_set_state(_ token: CInt, _ state64: UInt64) -> UInt32 { 1_000_000 }
@c @implementation public func notify_get_state(_ token: CInt, _ state64: UnsafeMutablePointer<UInt64>?) -> UInt32 {
    1_000_000
}
@c @implementation public func notify_is_valid_token(_ val: CInt) -> Bool { false }

@c @implementation public func notify_set_options(_ opts: UInt32) {}
@c @implementation public func notify_register_plain(
    _ name: UnsafePointer<CChar>?,
    _ out_token: UnsafeMutablePointer<CInt>?
) -> UInt32 { 1_000_000 }
@c @implementation public func notify_peek(_ token: CInt, _ val: UnsafeMutablePointer<UInt32>?) -> UInt32 { 1_000_000 }
@c @implementation public func notify_monitor_file(
    _ token: CInt,
    _ path: UnsafeMutablePointer<CChar>?,
    _ flags: CInt
) -> UInt32 { 1_000_000 }
@c @implementation public func notify_get_event(
    _ token: CInt,
    _ ev: UnsafeMutablePointer<CInt>?,
    _ buf: UnsafeMutablePointer<CChar>?,
    _ len: UnsafeMutablePointer<CInt>?
) -> UInt32 { 1_000_000 }
@c @implementation public func notify_simple_post(_ name: UnsafePointer<CChar>?) -> UInt32 { 1_000_000 }
@c @implementation public func notify_suspend_pid(_ pid: CInt) -> UInt32 { 1_000_000 }
@c @implementation public func notify_resume_pid(_ pid: CInt) -> UInt32 { 1_000_000 }
@c @implementation public func notify_dump_status(_ filepath: UnsafePointer<CChar>?) -> UInt32 { 1_000_000 }
@c @implementation public func _notify_fork_child() {}

/// For C, whose prototype Swift does not see: with an imported block type, `@implementation` crashes at run time.
@c(notify_register_dispatch) @usableFromInline
func registerDispatch(
    _ name: UnsafePointer<CChar>?,
    _ out_token: UnsafeMutablePointer<CInt>?,
    _ queue: OpaquePointer?,
    _ handler: (@convention(block) (CInt) -> Void)?
) -> UInt32 { 1_000_000 }
