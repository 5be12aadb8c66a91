@_exported public import enum DBusTransport.Bus
// The two names of the transport that this module's own API speaks of, so that its users import one module.
@_exported public import struct DBusTransport.DBusError
