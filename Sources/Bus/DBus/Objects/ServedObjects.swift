import CDBus

/// The objects that this connection serves, by path. Finds the object for a call.
struct ObjectTable {
    private var objects: [String: ServedObject] = [:]

    mutating func insert(_ object: ServedObject, at path: String) -> Bool {
        guard objects[path] == nil else { return false }
        objects[path] = object
        return true
    }

    mutating func remove(_ path: String) -> ServedObject? { objects.removeValue(forKey: path) }

    subscript(path: String) -> ServedObject? { objects[path] }

    func children(of path: String) -> [String] {
        let prefix = path == "/" ? "/" : path + "/"
        let names = objects.keys.filter { $0.hasPrefix(prefix) && $0 != "/" }
            .compactMap { $0.dropFirst(prefix.count).split(separator: "/").first.map(String.init) }
        return Set(names).sorted()
    }

    func isNode(_ path: String) -> Bool { path == "/" || objects[path] != nil || !children(of: path).isEmpty }

    /// Returns the path that a call names, if there is an object at it or below it.
    func node(of call: borrowing MessageHeader) throws(MethodFailure) -> String {
        guard let path = call.path else { throw .standard("UnknownObject", "the object path is too long") }
        guard isNode(path) else { throw .standard("UnknownObject", "there is no object \(path)") }
        return path
    }

    func object(of call: borrowing MessageHeader) throws(MethodFailure) -> ServedObject {
        if let path = call.path, let object = objects[path] { return object }
        throw .standard("UnknownInterface", "\(try node(of: call)) has no interface at all")
    }

    /// The longest path of an object in bytes. A caller's path may fill the largest message.
    static let longestPath = 4096
}

enum StandardInterfaces {
    /// Responds to a call that concerns no object's state; returns `nil` for any other call.
    static func answer(
        _ message: borrowing MessageHeader,
        _ objects: ObjectTable
    ) throws(MethodFailure) -> [DBusValue]? {
        guard let interface = immediate.first(where: { [name = message.interface] in $0.name == name }) else {
            return nil
        }
        // The caller expects no response. Such calls are limited only by the speed of reading, so they must cost
        // nothing.
        guard message.expectsReply else { return [] }
        let member = message.member ?? ""
        guard let method = interface.methods.first(where: { $0.name == member }) else {
            throw .standard("UnknownMethod", "\(interface.name) has no method \(member)")
        }
        try method.check(message.signature)
        switch member {
        case "Introspect":
            let path = try objects.node(of: message)
            return [.string(Introspection.document(objects[path], children: objects.children(of: path)))]
        case "GetMachineId": return [.string(try machineID())]
        default: return []
        }
    }

    /// The interface that reads the properties of `interfaces`.
    static func properties(of interfaces: [DBusInterface]) -> DBusInterface {
        DBusInterface(
            "org.freedesktop.DBus.Properties",
            methods: [
                method("Get", in: [("interface_name", "s"), ("property_name", "s")], out: [("value", "v")]) { call in
                    [.variant(await (try property(call.arguments, in: interfaces)).value())]
                },
                method("GetAll", in: [("interface_name", "s")], out: [("properties", "a{sv}")]) { call in
                    [try await properties(call.arguments, in: interfaces)]
                },
                method("Set", in: [("interface_name", "s"), ("property_name", "s"), ("value", "v")]) { _ in
                    throw MethodFailure.standard("PropertyReadOnly", "the properties of this object cannot be set")
                },
            ]
        )
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

    /// The interfaces of every node. ``answer(_:_:)`` implements them.
    private static let immediate: [DBusInterface] = [
        DBusInterface(
            "org.freedesktop.DBus.Introspectable",
            methods: [method("Introspect", out: [("xml", "s")]) { _ in [] }]
        ),
        DBusInterface(
            "org.freedesktop.DBus.Peer",
            methods: [method("Ping") { _ in [] }, method("GetMachineId", out: [("machine_uuid", "s")]) { _ in [] }]
        ),
    ]

    static let described = immediate + [properties(of: [])]

    private static func method(
        _ name: String,
        in inputs: [(String, String)] = [],
        out outputs: [(String, String)] = [],
        handler: @escaping @Sendable (IncomingCall) async throws -> [DBusValue]
    ) -> DBusInterface.Method {
        DBusInterface.Method(
            name,
            in: inputs.map { DBusInterface.Argument($0.0, $0.1) },
            out: outputs.map { DBusInterface.Argument($0.0, $0.1) },
            maximumBodyBytes: 4096,
            handler: handler
        )
    }
}

/// The introspection document of an object, for `busctl introspect` and similar tools.
enum Introspection {
    private static let emitsChanges = "org.freedesktop.DBus.Property.EmitsChangedSignal"

    /// - Parameter object: the object at the node, if there is one.
    static func document(_ object: ServedObject?, children: [String]) -> String {
        var text = """
            <!DOCTYPE node PUBLIC "-//freedesktop//DTD D-BUS Object Introspection 1.0//EN"
             "http://www.freedesktop.org/standards/dbus/1.0/introspect.dtd">
            <node>

            """
        text += object?.description ?? ""
        for child in children { text += "  <node name=\"\(child.escapedForXML)\"/>\n" }
        return text + "</node>\n"
    }

    /// The lines for an object's interfaces and for the standard interfaces.
    static func description(of interfaces: [DBusInterface]) -> String {
        guard !interfaces.isEmpty else { return "" }
        let lines = (interfaces + StandardInterfaces.described).flatMap { $0.description ?? described($0) }
        return lines.map { $0 + "\n" }.joined()
    }

    private static func described(_ interface: DBusInterface) -> [String] {
        var lines = ["  <interface name=\"\(interface.name.escapedForXML)\">"]
        for method in interface.methods {
            lines.append("    <method name=\"\(method.name.escapedForXML)\">")
            lines += method.inputs.map { argument($0, " direction=\"in\"") }
            lines += method.outputs.map { argument($0, " direction=\"out\"") }
            lines.append("    </method>")
        }
        for signal in interface.signals {
            lines.append("    <signal name=\"\(signal.name.escapedForXML)\">")
            lines += signal.arguments.map { argument($0, "") }
            lines.append("    </signal>")
        }
        for property in interface.properties {
            let (name, type) = (property.name.escapedForXML, property.signature.escapedForXML)
            lines.append("    <property name=\"\(name)\" type=\"\(type)\" access=\"read\">")
            // Without it, tools assume that PropertiesChanged announces changes.
            lines.append("      <annotation name=\"\(emitsChanges)\" value=\"false\"/>")
            lines.append("    </property>")
        }
        lines.append("  </interface>")
        return lines
    }

    private static func argument(_ argument: DBusInterface.Argument, _ direction: String) -> String {
        "      <arg name=\"\(argument.name.escapedForXML)\" type=\"\(argument.signature.escapedForXML)\"\(direction)/>"
    }
}

extension String {
    /// Escaped for XML text and attributes. By scalars: a quotation mark with a combining mark is a different
    /// `Character`.
    public var escapedForXML: String {
        unicodeScalars.reduce(into: "") { result, scalar in
            switch scalar {
            case "&": result += "&amp;"
            case "<": result += "&lt;"
            case ">": result += "&gt;"
            case "\"": result += "&quot;"
            default: result.unicodeScalars.append(scalar)
            }
        }
    }
}
