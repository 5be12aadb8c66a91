public import Foundation

/// Text. On Linux `NSString` itself, so that `"…" as CFString` and `text as String` convert as they do on Apple.
public typealias CFString = NSString

/// A dictionary. On Linux `NSDictionary` itself, so that `values as CFDictionary` and `dictionary as? [String: Any]` convert as they
/// do on Apple.
public typealias CFDictionary = NSDictionary

/// An array. On Linux `NSArray` itself.
public typealias CFArray = NSArray

/// A dictionary that changes. On Linux `NSMutableDictionary` itself.
public typealias CFMutableDictionary = NSMutableDictionary

/// Any object of CoreFoundation's.
public typealias CFTypeRef = AnyObject

/// What CoreFoundation counts with.
public typealias CFIndex = Int

/// A set of options, bit by bit.
public typealias CFOptionFlags = UInt

/// The number of a CoreFoundation type.
public typealias CFTypeID = UInt
