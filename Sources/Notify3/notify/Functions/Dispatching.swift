// Re-exports the constants and functions of <notify.h>. `import CNotify.Private` gives a program the declarations of
// <notify_private.h>.
@_exported public import CNotify
import CNotify.Queues
// On Apple, Dispatch comes along with `import notify`: the queue of notify_register_dispatch is a DispatchQueue.
@_exported public import Dispatch
import NotifyCenter

/// The function for C callers. Swift does not see the C prototype: with an imported block type, `@implementation`
/// crashes at run time. The block is an address here, because Swift would copy and release it with its own blocks
/// runtime, which may differ from the caller's.
@c(notify_register_dispatch) @usableFromInline
func registerDispatch(
    _ name: UnsafePointer<CChar>?,
    _ out_token: UnsafeMutablePointer<CInt>?,
    _ queue: OpaquePointer?,
    _ handler: UnsafeRawPointer?
) -> UInt32 {
    register(out_token) { () throws(NotifyStatus) in
        guard let queue, let handler else { throw .nullInput }
        return try ProcessState.client.register(name, .dispatch) { () throws(NotifyStatus) in
            guard let block = CallersBlock(handler) else { throw .failed }
            return QueueSink(block.call, schedule: CallersQueue(queue).schedule)
        }
    }
}

@c @implementation public func notify_register_dispatch_f(
    _ name: UnsafePointer<CChar>?,
    _ out_token: UnsafeMutablePointer<CInt>?,
    _ queue: OpaquePointer?,
    _ context: UnsafeMutableRawPointer?,
    _ handler: (@convention(c) (UnsafeMutableRawPointer?, CInt) -> Void)?,
    _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)?
) -> UInt32 {
    register(out_token) { () throws(NotifyStatus) in
        guard let handler else { throw .nullInput }
        let function = CallersFunction(handler, context, release)
        do throws(NotifyStatus) {
            return try ProcessState.client.register(name, .dispatch) { () throws(NotifyStatus) in
                guard let queue else { return QueueSink(function.call) { ownQueue.async(execute: $0) } }
                return QueueSink(function.call, schedule: CallersQueue(queue).schedule)
            }
        } catch {
            // The caller gets no registration, so the context still belongs to the caller.
            function.keepContext()
            throw error
        }
    }
}

/// The queue for handlers of callers that pass no queue.
private let ownQueue = DispatchQueue(label: "org.notifycenter.notify.handlers")

/// The handler of ``notify_register_dispatch(_:_:_:_:)``. Its argument is the token.
public typealias notify_handler_t = @Sendable (Int32) -> Void

/// Calls `handler` with the token after each post of `name`, on `queue` and asynchronously.
///
/// The library keeps the queue and the handler until the registration is cancelled, and releases the handler on the
/// queue. It checks the token right before each call: no call begins after `notify_cancel`. At most 16 calls wait to
/// begin; while they do, further posts add no calls. The handler may cancel its token. The function waits for the bus,
/// 30 seconds at most, and the registration is in force when it returns.
///
/// - Returns: `NOTIFY_STATUS_OK`, or an error of `notify_register_check`; then `out_token` is `NOTIFY_TOKEN_INVALID`.
///   `NOTIFY_STATUS_NULL_INPUT` also for a missing queue or handler.
@preconcurrency @discardableResult
public func notify_register_dispatch(
    _ name: UnsafePointer<CChar>!,
    _ out_token: UnsafeMutablePointer<Int32>!,
    _ queue: DispatchQueue!,
    _ handler: notify_handler_t!
) -> UInt32 {
    register(out_token) { () throws(NotifyStatus) in
        guard let queue, let handler else { throw .nullInput }
        return try ProcessState.client.register(name, .dispatch) { () throws(NotifyStatus) in
            QueueSink(handler) { queue.async(execute: $0) }
        }
    }
}
