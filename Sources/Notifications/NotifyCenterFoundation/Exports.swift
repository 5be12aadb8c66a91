// What this module's own API speaks of, so that ported source imports Foundation and one module more. Nothing else of
// NotifyCenter's: its names are for those who choose them.
@_exported public import enum NotifyCenter.Bus
@_exported public import struct NotifyCenter.DBusError
@_exported public import enum NotifyCenter.UnthrownFailures
