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
        public init(_ name: String, _ signature: String) {
            self.name = name
            self.signature = signature
        }
    }

    /// A method. Each call runs in a separate task, so that calls of one client may overlap; or in order, on the
    /// reading thread.
    public struct Method: Sendable {
        /// Returns a response that is available without waiting; `nil` if there is none.
        public typealias AtOnce = @Sendable (IncomingCall) -> [DBusValue]?

        enum Handler: Sendable {
            case task(AtOnce?, @Sendable (IncomingCall) async throws -> [DBusValue])
            case inOrder(@Sendable (IncomingCall, CallReply) -> Void)
            case reading(@Sendable (borrowing DBusMessage, CallReply) -> Void)
        }

        let name: String
        let inputs: [Argument]
        let outputs: [Argument]
        let maximumBodyBytes: Int?
        let handler: Handler

        /// Creates a method whose calls run in tasks. A call with another signature is refused before the handler sees
        /// it.
        ///
        /// - Parameters:
        ///   - maximumBodyBytes: the largest body of a call; `nil` means the limit in the object's ``CallLimits``. A
        ///     larger body is refused before it is read.
        ///   - atOnce: called first, on the reading thread, so it must return soon. Its response needs no change of
        ///     threads. If it returns `nil`, the call goes to `handler`.
        ///   - handler: returns the output arguments. A thrown ``MethodFailure`` is sent under its name, any other
        ///     error as `org.freedesktop.DBus.Error.Failed`.
        public init(
            _ name: String,
            in inputs: [Argument] = [],
            out outputs: [Argument] = [],
            maximumBodyBytes: Int? = nil,
            atOnce: AtOnce? = nil,
            handler: @escaping @Sendable (IncomingCall) async throws -> [DBusValue]
        ) {
            self.name = name
            self.inputs = inputs
            self.outputs = outputs
            self.maximumBodyBytes = maximumBodyBytes
            self.handler = .task(atOnce, handler)
        }

        /// Creates a method whose calls are handled in the order in which the bus delivers them and signals. They run
        /// on the reading thread, so the handler must return soon. Otherwise as the other form.
        ///
        /// - Parameters:
        ///   - maximumBodyBytes: as in the other form.
        ///   - inOrder: sends the reply, then or later. An unanswered call counts against the object's ``CallLimits``
        ///     while its reply is held.
        public init(
            _ name: String,
            in inputs: [Argument] = [],
            out outputs: [Argument] = [],
            maximumBodyBytes: Int? = nil,
            inOrder handler: @escaping @Sendable (IncomingCall, CallReply) -> Void
        ) {
            self.name = name
            self.inputs = inputs
            self.outputs = outputs
            self.maximumBodyBytes = maximumBodyBytes
            self.handler = .inOrder(handler)
        }

        /// Creates a method whose calls are handled in order, and whose handler decodes the arguments itself: for
        /// arguments that must not leave a copy in memory.
        public init(
            _ name: String,
            in inputs: [Argument] = [],
            out outputs: [Argument] = [],
            reading handler: @escaping @Sendable (borrowing DBusMessage, CallReply) -> Void
        ) {
            self.name = name
            self.inputs = inputs
            self.outputs = outputs
            maximumBodyBytes = nil
            self.handler = .reading(handler)
        }

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
        public init(_ name: String, _ arguments: [Argument] = []) {
            self.name = name
            self.arguments = arguments
        }
    }

    /// A property that other peers can read.
    public struct Property: Sendable {
        let name: String
        let signature: String
        let value: @Sendable () async -> DBusValue

        /// Creates a read-only property; `value` is called at each read.
        public init(_ name: String, _ signature: String, value: @escaping @Sendable () async -> DBusValue) {
            self.name = name
            self.signature = signature
            self.value = value
        }
    }

    let name: String
    let methods: [Method]
    let signals: [Signal]
    let properties: [Property]
    /// The lines of the `<interface>` element for introspection; `nil` if they are made from the parts above.
    let description: [String]?

    /// Creates an interface with this name.
    public init(_ name: String, methods: [Method] = [], signals: [Signal] = [], properties: [Property] = []) {
        self.init(name, methods: methods, signals: signals, properties: properties, document: nil)
    }

    /// Creates an interface that introspection shows as in the document, comments included.
    ///
    /// - Parameter document: an introspection document with one `<interface>` element, formatted as introspection
    ///   formats it: each tag on a separate line. The caller makes sure that it matches the methods' arguments.
    public init(
        _ name: String,
        methods: [Method] = [],
        signals: [Signal] = [],
        properties: [Property] = [],
        document: String?
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
        self.name = name
        self.message = message
        self.details = details
    }

    static func standard(_ name: String, _ message: String) -> MethodFailure {
        MethodFailure(name: "org.freedesktop.DBus.Error.\(name)", message: message)
    }
}
