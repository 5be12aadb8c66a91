import CDBus

/// The objects that this connection serves, by path. Pure: finds who answers a call.
struct ObjectTable {
    private var objects: [String: [DBusInterface]] = [:]

    mutating func insert(_ interfaces: [DBusInterface], at path: String) -> Bool {
        guard objects[path] == nil else { return false }
        objects[path] = interfaces
        return true
    }

    mutating func remove(_ path: String) -> [DBusInterface]? { objects.removeValue(forKey: path) }

    func interfaces(at path: String) -> [DBusInterface] { objects[path] ?? [] }

    /// The names of the nodes directly below `path`.
    func children(of path: String) -> [String] {
        let prefix = path == "/" ? "/" : path + "/"
        let names = objects.keys.filter { $0.hasPrefix(prefix) && $0 != "/" }
            .compactMap { $0.dropFirst(prefix.count).split(separator: "/").first.map(String.init) }
        return Set(names).sorted()
    }

    /// Whether `path` is an object or leads to one.
    func isNode(_ path: String) -> Bool { path == "/" || objects[path] != nil || !children(of: path).isEmpty }

    /// The method that a call names. The interface may be left out of a call (D-Bus specification, "Message Types").
    func method(path: String, interface: String?, member: String) throws(MethodFailure) -> DBusInterface.Method {
        guard isNode(path) else { throw .standard("UnknownObject", "there is no object \(path)") }
        let interfaces = interfaces(at: path).filter { interface == nil || $0.name == interface }
        guard !interfaces.isEmpty else {
            throw .standard("UnknownInterface", "\(path) has no interface \(interface ?? "at all")")
        }
        guard let method = interfaces.lazy.flatMap(\.methods).first(where: { $0.name == member }) else {
            throw .standard("UnknownMethod", "\(interface ?? path) has no method \(member)")
        }
        return method
    }
}

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

/// The introspection document of an object, as `busctl introspect` and its like read it.
struct Introspection: CustomStringConvertible {
    let interfaces: [DBusInterface]
    let children: [String]

    private static let emitsChanges = "org.freedesktop.DBus.Property.EmitsChangedSignal"

    var description: String {
        var lines = [
            "<!DOCTYPE node PUBLIC \"-//freedesktop//DTD D-BUS Object Introspection 1.0//EN\"",
            " \"http://www.freedesktop.org/standards/dbus/1.0/introspect.dtd\">",
            "<node>",
        ]
        if !interfaces.isEmpty {
            for interface in interfaces + StandardInterfaces.described { lines += described(interface) }
        }
        lines += children.map { "  <node name=\"\(escaped($0))\"/>" }
        lines.append("</node>")
        return lines.joined(separator: "\n") + "\n"
    }

    private func described(_ interface: DBusInterface) -> [String] {
        var lines = ["  <interface name=\"\(escaped(interface.name))\">"]
        for method in interface.methods {
            lines.append("    <method name=\"\(escaped(method.name))\">")
            lines += method.inputs.map { argument($0, " direction=\"in\"") }
            lines += method.outputs.map { argument($0, " direction=\"out\"") }
            lines.append("    </method>")
        }
        for signal in interface.signals {
            lines.append("    <signal name=\"\(escaped(signal.name))\">")
            lines += signal.arguments.map { argument($0, "") }
            lines.append("    </signal>")
        }
        for property in interface.properties {
            let (name, type) = (escaped(property.name), escaped(property.signature))
            lines.append("    <property name=\"\(name)\" type=\"\(type)\" access=\"read\">")
            // Otherwise tools take it for announced by PropertiesChanged.
            lines.append("      <annotation name=\"\(Self.emitsChanges)\" value=\"false\"/>")
            lines.append("    </property>")
        }
        lines.append("  </interface>")
        return lines
    }

    private func argument(_ argument: DBusInterface.Argument, _ direction: String) -> String {
        "      <arg name=\"\(escaped(argument.name))\" type=\"\(escaped(argument.signature))\"\(direction)/>"
    }

    private func escaped(_ text: String) -> String {
        text.reduce(into: "") { result, character in
            switch character {
            case "&": result += "&amp;"
            case "<": result += "&lt;"
            case ">": result += "&gt;"
            case "\"": result += "&quot;"
            default: result.append(character)
            }
        }
    }
}
