import Basics
import CDBus
public import DBus

/// Finds the object for a call among the objects that a connection serves, by path.
extension [String: ServedObject] {
    func children(of path: String) -> [String] {
        let prefix = path == "/" ? "/" : path + "/"
        let names = keys.filter { $0.hasPrefix(prefix) && $0 != "/" }
            .compactMap { $0.dropFirst(prefix.count).split(separator: "/").first.map(String.init) }
        return Set(names).sorted()
    }

    func isNode(_ path: String) -> Bool { path == "/" || self[path] != nil || !children(of: path).isEmpty }

    /// Returns the path that a call names, if there is an object at it or below it.
    func node(of call: borrowing MessageHeader) throws(MethodFailure) -> String {
        guard let path = call.path else {
            throw .standard("UnknownObject", "the object path has more than \(MessageHeader.longestPath) bytes")
        }
        guard isNode(path) else { throw .standard("UnknownObject", "there is no object \(path)") }
        return path
    }

    func object(of call: borrowing MessageHeader) throws(MethodFailure) -> ServedObject {
        if let path = call.path, let object = self[path] { return object }
        throw .standard("UnknownInterface", "\(try node(of: call)) has no interface at all")
    }
}

enum StandardInterfaces {
    /// Responds to a call that concerns no object's state; returns `nil` for any other call.
    static func answer(
        _ message: borrowing MessageHeader,
        _ objects: [String: ServedObject]
    ) throws(MethodFailure) -> [DBusValue]? {
        guard let interface = immediate.first(where: { [name = message.interface] in $0.name == name }) else {
            return nil
        }
        // Without a response, only the speed of reading limits such calls, so they must cost nothing.
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
        for child in children { text += "  <node name=\"\(child.markup)\"/>\n" }
        return text + "</node>\n"
    }

    /// The lines for an object's interfaces and for the standard interfaces.
    static func description(of interfaces: [DBusInterface]) -> String {
        guard !interfaces.isEmpty else { return "" }
        let lines = (interfaces + StandardInterfaces.described).flatMap { $0.description ?? described($0) }
        return lines.map { $0 + "\n" }.joined()
    }

    private static func described(_ interface: DBusInterface) -> [String] {
        var lines = ["  <interface name=\"\(interface.name.markup)\">"]
        for method in interface.methods {
            lines.append("    <method name=\"\(method.name.markup)\">")
            lines += method.inputs.map { argument($0, " direction=\"in\"") }
            lines += method.outputs.map { argument($0, " direction=\"out\"") }
            lines.append("    </method>")
        }
        for signal in interface.signals {
            lines.append("    <signal name=\"\(signal.name.markup)\">")
            lines += signal.arguments.map { argument($0, "") }
            lines.append("    </signal>")
        }
        for property in interface.properties {
            let (name, type) = (property.name.markup, property.signature.markup)
            lines.append("    <property name=\"\(name)\" type=\"\(type)\" access=\"read\">")
            // Without it, tools assume that PropertiesChanged announces changes.
            lines.append("      <annotation name=\"\(emitsChanges)\" value=\"false\"/>")
            lines.append("    </property>")
        }
        lines.append("  </interface>")
        return lines
    }

    private static func argument(_ argument: DBusInterface.Argument, _ direction: String) -> String {
        "      <arg name=\"\(argument.name.markup)\" type=\"\(argument.signature.markup)\"\(direction)/>"
    }
}

/// An interface that a service implements at an object path: its methods, signals and properties.
///
/// `org.freedesktop.DBus.Introspectable`, `.Peer` and `.Properties` are added automatically.
public struct DBusInterface: Sendable {
    /// A named argument.
    public struct Argument: Sendable, Hashable {
        /// The name, for introspection.
        public let name: String
        /// The type in D-Bus's notation, for instance `a{sv}`.
        public let signature: String

        /// Creates an argument.
        public init(_ name: String, _ signature: String) { (self.name, self.signature) = (name, signature) }
    }

    /// A method. Each call runs in a separate task, so that calls of one client may overlap; or in order, on the
    /// reading thread.
    public struct Method: Sendable {
        /// Returns a response that is available without waiting; `nil` if there is none.
        public typealias AtOnce = @Sendable (IncomingCall) -> [DBusValue]?

        let name: String
        let inputs: [Argument]
        let outputs: [Argument]
        let maximumBodyBytes: Int?
        /// Called on the reading thread.
        let handle: @Sendable (borrowing DBusMessage, CallReply) -> Void

        func check(_ signature: String) throws(MethodFailure) {
            let expected = inputs.map(\.signature).joined()
            guard signature == expected else {
                throw .standard("InvalidArgs", "\(name) takes “\(expected)”, not “\(signature)”")
            }
        }
    }

    /// A signal, for introspection.
    public struct Signal: Sendable {
        let name: String
        let arguments: [Argument]

        /// Creates a signal with these arguments.
        public init(_ name: String, _ arguments: [Argument] = []) { (self.name, self.arguments) = (name, arguments) }
    }

    /// A property that other peers can read.
    public struct Property: Sendable {
        let name: String
        let signature: String
        let value: @Sendable () async -> DBusValue

        /// Creates a read-only property; `value` is called at each read.
        public init(_ name: String, _ signature: String, value: @escaping @Sendable () async -> DBusValue) {
            (self.name, self.signature, self.value) = (name, signature, value)
        }
    }

    let name: String
    let methods: [Method]
    let signals: [Signal]
    let properties: [Property]
    /// The lines of the `<interface>` element for introspection; `nil` if they are made from the parts above.
    let description: [String]?

    /// Creates an interface with this name.
    ///
    /// - Parameter document: the introspection document to show, comments included; `nil` for one that is made from
    ///   the methods, signals and properties. It has one `<interface>` element, with each tag on a separate line. The
    ///   caller makes sure that it matches the methods' arguments.
    public init(
        _ name: String,
        methods: [Method] = [],
        signals: [Signal] = [],
        properties: [Property] = [],
        document: String? = nil
    ) {
        self.name = name
        self.methods = methods
        self.signals = signals
        self.properties = properties
        description = document.map { document in
            let lines = document.split(separator: "\n").map(String.init).drop { !$0.hasPrefix("  <interface ") }
            return Array(lines.prefix { !$0.hasPrefix("</node>") })
        }
    }
}

extension DBusInterface.Method {
    /// Creates a method whose calls run in tasks. A call with another signature is refused before the handler sees it.
    ///
    /// - Parameters:
    ///   - maximumBodyBytes: the largest body of a call; `nil` means the limit in the object's ``CallLimits``. A larger
    ///     body is refused before it is read.
    ///   - atOnce: called first, on the reading thread, so it must return soon. Its response needs no change of
    ///     threads. If it returns `nil`, the call goes to `handler`.
    ///   - handler: returns the output arguments. A thrown ``MethodFailure`` is sent under its name, any other error as
    ///     `org.freedesktop.DBus.Error.Failed`.
    public init(
        _ name: String,
        in inputs: [DBusInterface.Argument] = [],
        out outputs: [DBusInterface.Argument] = [],
        maximumBodyBytes: Int? = nil,
        atOnce: AtOnce? = nil,
        handler: @escaping @Sendable (IncomingCall) async throws -> [DBusValue]
    ) {
        self.init(name: name, inputs: inputs, outputs: outputs, maximumBodyBytes: maximumBodyBytes) { _, reply in
            guard let atOnce else {
                // The arguments are decoded in the task, to keep the reading thread free.
                Task { await reply.sendResult { try await handler(try reply.incomingCall) } }
                return
            }
            reply.withCall { call in
                if let values = atOnce(call) { return reply.send(.success(values)) }
                Task { await reply.sendResult { try await handler(call) } }
            }
        }
    }

    /// Creates a method whose calls are handled on the reading thread, in the order in which the bus delivers them and
    /// signals: the handler must return soon. Otherwise as the other form.
    ///
    /// - Parameter inOrder: sends the reply, then or later. An unanswered call counts against the object's
    ///   ``CallLimits`` while its reply is held.
    public init(
        _ name: String,
        in inputs: [DBusInterface.Argument] = [],
        out outputs: [DBusInterface.Argument] = [],
        maximumBodyBytes: Int? = nil,
        inOrder handler: @escaping @Sendable (IncomingCall, CallReply) -> Void
    ) {
        self.init(name: name, inputs: inputs, outputs: outputs, maximumBodyBytes: maximumBodyBytes) { _, reply in
            reply.withCall { handler($0, reply) }
        }
    }

    /// As the form above, but the handler decodes the arguments itself, so that they leave no copy in memory.
    public init(
        _ name: String,
        in inputs: [DBusInterface.Argument] = [],
        out outputs: [DBusInterface.Argument] = [],
        reading handler: @escaping @Sendable (borrowing DBusMessage, CallReply) -> Void
    ) { self.init(name: name, inputs: inputs, outputs: outputs, maximumBodyBytes: nil, handle: handler) }
}

/// A method call from another process. Only `sender` can be trusted: the bus vouches for it.
public struct IncomingCall: Sendable {
    /// The caller's unique bus name.
    public let sender: String
    /// The method's name.
    public let member: String
    /// The arguments, which have the method's signature.
    public let arguments: [DBusValue]
}

/// A method's refusal, as the caller gets it.
public struct MethodFailure: Error, Sendable, Hashable {
    /// The D-Bus error name, for instance `org.example.Error.Busy`.
    public let name: String
    /// The reason, for people.
    public let message: String
    /// Details for programs: the second argument of the error, `a{sv}`. If empty, the error has no second argument.
    public let details: [String: DBusValue]

    /// Creates a refusal with this error name.
    public init(name: String, message: String, details: [String: DBusValue] = [:]) {
        (self.name, self.message, self.details) = (name, message, details)
    }

    static func standard(_ name: String, _ message: String) -> MethodFailure {
        MethodFailure(name: "org.freedesktop.DBus.Error.\(name)", message: message)
    }
}
