/// What happened to the connection itself.
public enum ConnectionEvent: Sendable {
    /// The bus is gone. Signals sent until it is back are lost; calls fail with ``DBusError/Code/disconnected``.
    case lost
    /// The bus is back: names, match rules and objects are in place again, but for those that `failures` tells of. Whoever
    /// keeps a copy of somebody's state should ask for it anew.
    case restored(failures: [DBusError])
}
