public import CoreFoundation

// What a program that only listens ends with. Not re-exported, because the rest of CoreFoundation would come along into this
// module's documentation.

/// A thread's run loop.
public typealias CFRunLoop = CoreFoundation.CFRunLoop

/// Runs this thread's run loop until ``CFRunLoopStop(_:)``. On the main thread that delivers notifications, but not from within a job of
/// the main queue, such as a callback, or an `async` main after its first `await`: the queue does not nest, and the run loop, with
/// nothing else to wait for, returns at once. An `async` main delivers by itself, as long as it awaits.
public func CFRunLoopRun() { CoreFoundation.CFRunLoopRun() }

/// Makes a run loop return from its ``CFRunLoopRun()``.
public func CFRunLoopStop(_ rl: CFRunLoop!) {
    guard let rl else { return }
    CoreFoundation.CFRunLoopStop(rl)
}

/// The main thread's run loop.
public func CFRunLoopGetMain() -> CFRunLoop! { CoreFoundation.CFRunLoopGetMain() }

/// This thread's run loop.
public func CFRunLoopGetCurrent() -> CFRunLoop! { CoreFoundation.CFRunLoopGetCurrent() }
