public import CoreFoundation

// What a program that only listens ends with. Not re-exported, because the rest of CoreFoundation would come along into this
// module's documentation.

/// A thread's run loop.
public typealias CFRunLoop = CoreFoundation.CFRunLoop

/// Runs this thread's run loop until ``CFRunLoopStop(_:)``. On the main thread that delivers notifications.
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
