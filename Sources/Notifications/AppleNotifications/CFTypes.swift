public import CoreFoundation
public import Foundation
// Re-exported: a ported file that imports Foundation and this module needs `DistributedNotificationCenter` and
// `UnthrownFailures` too.
@_exported public import NotifyCenterFoundation

// MARK: Types

/// Text. On Linux this is `NSString`, so that `"…" as CFString` and `text as String` convert as they do on Apple.
public typealias CFString = NSString

/// A dictionary. On Linux this is `NSDictionary`, so that `values as CFDictionary` and `dictionary as? [String: Any]`
/// convert as they do on Apple.
public typealias CFDictionary = NSDictionary

/// An array. On Linux this is `NSArray`.
public typealias CFArray = NSArray

/// A mutable dictionary. On Linux this is `NSMutableDictionary`.
public typealias CFMutableDictionary = NSMutableDictionary

/// A truth value. On Linux this is `NSNumber`, so that `flag as? Bool` reads it as on Apple.
public typealias CFBoolean = NSNumber

/// True, as a value of a dictionary.
public let kCFBooleanTrue: CFBoolean! = true

/// False, as a value of a dictionary.
public let kCFBooleanFalse: CFBoolean! = false

/// Returns the truth value; false for `nil`.
public func CFBooleanGetValue(_ boolean: CFBoolean!) -> Bool { boolean?.boolValue ?? false }

/// Any object.
public typealias CFTypeRef = AnyObject

/// A count or an index.
public typealias CFIndex = Int

/// A set of options, bit by bit.
public typealias CFOptionFlags = UInt

/// The number of a CoreFoundation type.
public typealias CFTypeID = UInt

// MARK: Run loops

// A program that only listens ends with these functions. They are not re-exports: a re-export would show the file the
// rest of CoreFoundation, and two types of each name. A file that also imports CoreFoundation gets that module's
// functions.

/// A thread's run loop.
public typealias CFRunLoop = CoreFoundation.CFRunLoop

/// Runs this thread's run loop until ``CFRunLoopStop(_:)``. On the main thread this delivers notifications.
///
/// Within a job of the main queue it delivers nothing, because that queue does not nest. If the run loop has nothing
/// else to wait for, the function returns at once. A callback is such a job, and so is an `async` main after its first
/// `await`. An `async` main delivers without this function while it awaits.
@_disfavoredOverload public func CFRunLoopRun() { CoreFoundation.CFRunLoopRun() }

/// Makes the run loop return from its ``CFRunLoopRun()``.
@_disfavoredOverload public func CFRunLoopStop(_ rl: CFRunLoop!) {
    guard let rl else { return }
    CoreFoundation.CFRunLoopStop(rl)
}

/// The main thread's run loop.
@_disfavoredOverload public func CFRunLoopGetMain() -> CFRunLoop! { CoreFoundation.CFRunLoopGetMain() }

/// This thread's run loop.
@_disfavoredOverload public func CFRunLoopGetCurrent() -> CFRunLoop! { CoreFoundation.CFRunLoopGetCurrent() }
