public import CoreFoundation
public import Foundation
// A ported file that imports Foundation and this module finds `DistributedNotificationCenter` and `UnthrownFailures` too.
@_exported public import NotifyCenterFoundation

// MARK: Types

/// Text. On Linux `NSString` itself, so that `"…" as CFString` and `text as String` convert as they do on Apple.
public typealias CFString = NSString

/// A dictionary. On Linux `NSDictionary` itself, so that `values as CFDictionary` and `dictionary as? [String: Any]` convert as they
/// do on Apple.
public typealias CFDictionary = NSDictionary

/// An array. On Linux `NSArray` itself.
public typealias CFArray = NSArray

/// A dictionary that changes. On Linux `NSMutableDictionary` itself.
public typealias CFMutableDictionary = NSMutableDictionary

/// A truth value. On Linux `NSNumber` itself, so that `flag as? Bool` reads it as on Apple.
public typealias CFBoolean = NSNumber

/// True, as a value of a dictionary.
public let kCFBooleanTrue: CFBoolean! = true

/// False, as a value of a dictionary.
public let kCFBooleanFalse: CFBoolean! = false

/// Whether the truth value is true; without one, false.
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

// A program that only listens ends with these. Functions of this module's own instead of re-exports, because a file
// would see the rest of CoreFoundation, and two types of each name. A file that imports CoreFoundation too gets the
// functions of that module.

/// A thread's run loop.
public typealias CFRunLoop = CoreFoundation.CFRunLoop

/// Runs this thread's run loop until ``CFRunLoopStop(_:)``. On the main thread this delivers notifications.
///
/// Within a job of the main queue it delivers nothing, because that queue does not nest; where the run loop has nothing else to wait for,
/// the function returns at once. A callback is such a job, and so is an `async` main after its first `await`. An `async` main delivers
/// by itself, as long as it awaits.
@_disfavoredOverload public func CFRunLoopRun() { CoreFoundation.CFRunLoopRun() }

/// Makes a run loop return from its ``CFRunLoopRun()``.
@_disfavoredOverload public func CFRunLoopStop(_ rl: CFRunLoop!) {
    guard let rl else { return }
    CoreFoundation.CFRunLoopStop(rl)
}

/// The main thread's run loop.
@_disfavoredOverload public func CFRunLoopGetMain() -> CFRunLoop! { CoreFoundation.CFRunLoopGetMain() }

/// This thread's run loop.
@_disfavoredOverload public func CFRunLoopGetCurrent() -> CFRunLoop! { CoreFoundation.CFRunLoopGetCurrent() }
