import CDBus

/// The form of names on a bus.
package enum BusName {
    /// Whether a program may ask the bus for this name. A unique name (“:1.7”) is given, never asked for.
    package static func isWellKnown(_ name: String) -> Bool {
        !name.hasPrefix(":") && !name.utf8.contains(0) && dbus_validate_bus_name(name, nil) != 0
    }
}
