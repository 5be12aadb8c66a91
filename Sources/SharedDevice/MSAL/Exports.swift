// As MSAL's module does: a file that imports MSAL alone finds `DispatchQueue`, `NSError` and `URL` too.
@_exported public import Foundation

@_exported public import enum NotifyCenter.Bus
