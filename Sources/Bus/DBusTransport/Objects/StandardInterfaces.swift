import CDBus

/// The interfaces that every object has.
enum StandardInterfaces {
    /// Whether `interface` is one of them.
    static func have(_ interface: String?) -> Bool { described.contains { $0.name == interface } }

    /// Answers a call of a standard interface; `nil` where it is of another.
    static func answer(
        _ interface: String?,
        _ call: IncomingCall,
        path: String,
        objects: ObjectTable
    ) async throws -> [DBusValue]? {
        switch (interface, call.member) {
        case ("org.freedesktop.DBus.Peer", "Ping"):
            return []
        case ("org.freedesktop.DBus.Peer", "GetMachineId"):
            return [.string(try machineID())]
        case ("org.freedesktop.DBus.Introspectable", "Introspect"):
            guard objects.isNode(path) else {
                throw MethodFailure.standard("UnknownObject", "there is no object \(path)")
            }
            let introspection = Introspection(
                interfaces: objects.interfaces(at: path),
                children: objects.children(of: path)
            )
            return [.string(introspection.description)]
        case ("org.freedesktop.DBus.Properties", "Get"):
            return [.variant(try await property(call.arguments, in: objects.interfaces(at: path)).value())]
        case ("org.freedesktop.DBus.Properties", "GetAll"):
            return [try await properties(call.arguments, in: objects.interfaces(at: path))]
        case ("org.freedesktop.DBus.Properties", "Set"):
            throw MethodFailure.standard("PropertyReadOnly", "no property here can be set")
        case ("org.freedesktop.DBus.Peer", _), ("org.freedesktop.DBus.Introspectable", _),
            ("org.freedesktop.DBus.Properties", _):
            throw MethodFailure.standard("UnknownMethod", "\(interface ?? "") has no method \(call.member)")
        default:
            return nil
        }
    }

    private static func property(
        _ arguments: [DBusValue],
        in interfaces: [DBusInterface]
    ) throws(MethodFailure) -> DBusInterface.Property {
        guard arguments.count == 2, let interface = arguments[0].stringValue, let name = arguments[1].stringValue else {
            throw .standard("InvalidArgs", "Get takes an interface and a name")
        }
        let candidates = interfaces.filter { interface.isEmpty || $0.name == interface }.flatMap(\.properties)
        guard let property = candidates.first(where: { $0.name == name }) else {
            throw .standard("UnknownProperty", "\(interface) has no property \(name)")
        }
        return property
    }

    private static func properties(_ arguments: [DBusValue], in interfaces: [DBusInterface]) async throws -> DBusValue {
        guard arguments.count == 1, let interface = arguments[0].stringValue else {
            throw MethodFailure.standard("InvalidArgs", "GetAll takes an interface")
        }
        var fields: [String: DBusValue] = [:]
        for property in interfaces.filter({ interface.isEmpty || $0.name == interface }).flatMap(\.properties) {
            fields[property.name] = await property.value()
        }
        return .fields(fields)
    }

    private static func machineID() throws(MethodFailure) -> String {
        guard let identifier = dbus_get_local_machine_id() else {
            throw .standard("Failed", "this machine has no machine id")
        }
        defer { dbus_free(identifier) }
        return String(cString: identifier)
    }

    /// For introspection only; ``answer(_:_:path:objects:)`` does the work.
    static let described: [DBusInterface] = [
        DBusInterface(
            "org.freedesktop.DBus.Introspectable",
            methods: [method("Introspect", out: [("xml", "s")])]
        ),
        DBusInterface(
            "org.freedesktop.DBus.Peer",
            methods: [method("Ping"), method("GetMachineId", out: [("machine_uuid", "s")])]
        ),
        DBusInterface(
            "org.freedesktop.DBus.Properties",
            methods: [
                method("Get", in: [("interface_name", "s"), ("property_name", "s")], out: [("value", "v")]),
                method("GetAll", in: [("interface_name", "s")], out: [("properties", "a{sv}")]),
                method("Set", in: [("interface_name", "s"), ("property_name", "s"), ("value", "v")]),
            ]
        ),
    ]

    private static func method(
        _ name: String,
        in inputs: [(String, String)] = [],
        out outputs: [(String, String)] = []
    ) -> DBusInterface.Method {
        DBusInterface.Method(
            name,
            in: inputs.map { DBusInterface.Argument($0.0, $0.1) },
            out: outputs.map { DBusInterface.Argument($0.0, $0.1) }
        ) { _ in [] }
    }
}
