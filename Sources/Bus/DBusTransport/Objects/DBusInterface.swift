/// An interface that a service implements at an object path: its methods, the signals that it emits, its properties.
///
/// `org.freedesktop.DBus.Introspectable`, `.Peer` and `.Properties` come by themselves.
public struct DBusInterface: Sendable {
    /// One named argument.
    public struct Argument: Sendable, Hashable {
        /// The name, for introspection.
        public let name: String
        /// The type in D-Bus's notation, for instance `a{sv}`.
        public let signature: String

        /// An argument.
        public init(_ name: String, _ signature: String) {
            self.name = name
            self.signature = signature
        }
    }

    /// A method. Its calls run in a task each, so that calls of one client may overlap; or in order, on the reading thread.
    public struct Method: Sendable {
        /// An answer that is there without waiting for anything; `nil` where it is not.
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

        /// A method; calls whose arguments have another signature are refused before the handler sees them.
        ///
        /// - Parameters:
        ///   - maximumBodyBytes: the largest body of a call; `nil` means that of the object's ``CallLimits``. A larger one is refused before
        ///     it is read.
        ///   - atOnce: asked first, on the reading thread, so that it must return soon; what it answers costs no change of threads. Calls
        ///     that it has no answer to go to `handler`.
        ///   - handler: returns the output arguments. A thrown ``MethodFailure`` travels under its name, any other error as
        ///     `org.freedesktop.DBus.Error.Failed`.
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

        /// A method whose calls are handled in the order in which the bus delivers them, signals included: on the reading
        /// thread, so that the handler must return soon. Otherwise as the other form.
        ///
        /// - Parameters:
        ///   - maximumBodyBytes: as in the other form.
        ///   - inOrder: answers by the reply that it is given, then or later. A call that is not answered counts against the object's
        ///     ``CallLimits`` as long as somebody holds its reply.
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

        /// As the method whose calls are handled in order, but reads the arguments itself: for arguments of which no copy may stay in memory.
        package init(
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

        /// Refuses arguments of other types.
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

        /// A signal with these arguments.
        public init(_ name: String, _ arguments: [Argument] = []) {
            self.name = name
            self.arguments = arguments
        }
    }

    /// A property that others read.
    public struct Property: Sendable {
        let name: String
        let signature: String
        let value: @Sendable () async -> DBusValue

        /// A read-only property; `value` is asked at each read.
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
    /// The lines of the element `<interface>` that introspection shows; `nil` where it is made of the parts above.
    let description: [String]?

    /// An interface of this name.
    public init(_ name: String, methods: [Method] = [], signals: [Signal] = [], properties: [Property] = []) {
        self.init(name, methods: methods, signals: signals, properties: properties, document: nil)
    }

    /// An interface that introspection shows as a document describes it, comments included.
    ///
    /// - Parameter document: an introspection document with one element `<interface>`, written as introspection writes it: each tag in a line
    ///   of its own. The caller makes sure that it says what the methods take and return.
    package init(
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

/// A method call from another process. Nothing in it is to be trusted but `sender`, which the bus vouches for.
public struct IncomingCall: Sendable {
    /// The caller's unique bus name.
    public let sender: String
    /// The method's name.
    public let member: String
    /// The arguments, of the signature that the method promises.
    public let arguments: [DBusValue]
}

/// A method's refusal, as the caller gets it.
public struct MethodFailure: Error, Sendable, Hashable {
    /// The D-Bus error name, for instance `org.example.Error.Busy`.
    public let name: String
    /// The reason, for people.
    public let message: String
    /// More about it, for programs: a second argument of the error, `a{sv}`. Without any there is no such argument.
    public let details: [String: DBusValue]

    /// A refusal under this name.
    public init(name: String, message: String, details: [String: DBusValue] = [:]) {
        self.name = name
        self.message = message
        self.details = details
    }

    static func standard(_ name: String, _ message: String) -> MethodFailure {
        MethodFailure(name: "org.freedesktop.DBus.Error.\(name)", message: message)
    }
}
