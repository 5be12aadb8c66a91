public import Basics

/// A failure on the bus: the attempted action, the cause, and the remedy if one is known.
///
/// Programs read `code`, people read `description`. `name` is the D-Bus error name if the bus or a peer responded with
/// an error, for instance `org.freedesktop.DBus.Error.AccessDenied`.
public struct DBusError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The kind of failure. A struct, so that a new kind breaks no `switch`.
    public struct Code: Sendable, Hashable, CustomStringConvertible {
        /// The code's name.
        public let description: String

        private init(_ name: String) { description = name }

        /// The address has no reachable bus, or there is no address.
        public static let noBus = Code("noBus")
        /// The system has run out of descriptors, threads or memory.
        public static let noResources = Code("noResources")
        /// The bus was lost; the connection is being restored.
        public static let disconnected = Code("disconnected")
        /// This process closed the connection, or it was forked from a process that had used a bus.
        public static let closed = Code("closed")
        /// No response came in time.
        public static let timedOut = Code("timedOut")
        /// The waiting task was cancelled.
        public static let cancelled = Code("cancelled")
        /// The bus or the peer responded with an error; see ``DBusError/name``.
        public static let refused = Code("refused")
        /// A limit of the bus or the peer for one connection or user is reached, the bus has left 64 MiB of this
        /// connection unread, or a response is larger than its call permits.
        public static let limitsExceeded = Code("limitsExceeded")
        /// A value that D-Bus cannot carry, or a name that it does not accept. Nothing was sent.
        public static let invalidArgument = Code("invalidArgument")
        /// The message exceeds the size that every bus accepts. Nothing was sent.
        public static let tooLarge = Code("tooLarge")
        /// A received message does not have the promised form.
        public static let malformed = Code("malformed")
        /// Another connection owns the requested bus name.
        public static let nameTaken = Code("nameTaken")
        /// A function that waits for the bus was called on the thread that reads the bus, for instance in an observer's
        /// handler with immediate delivery. Nothing was sent.
        public static let wouldDeadlock = Code("wouldDeadlock")
    }

    private struct Content: Sendable, Hashable {
        let code: Code
        let name: String?
        let message: String
        let attempted: String
        let remedy: String?
        let details: [String: DBusValue]
    }

    /// On the heap: every call that may fail reserves room for an error, and few calls fail.
    private indirect enum Box: Sendable, Hashable {
        case content(Content)
    }

    private let box: Box

    private var content: Content {
        switch box {
        case .content(let content): content
        }
    }

    /// The kind of failure.
    public var code: Code { content.code }
    /// The D-Bus error name, if the bus or a peer gave one.
    public var name: String? { content.name }
    /// The cause.
    public var message: String { content.message }
    /// The attempted action, as a phrase that completes “could not …”.
    public var attempted: String { content.attempted }
    /// The remedy, if one is known.
    public var remedy: String? { content.remedy }
    /// The peer's details for programs, from the second argument of its error; empty if it sent none.
    public var details: [String: DBusValue] { content.details }

    /// Creates an error with this code. The texts are for people.
    public init(
        _ code: Code,
        name: String? = nil,
        message: String,
        attempted: String,
        remedy: String? = nil,
        details: [String: DBusValue] = [:]
    ) {
        box = .content(
            Content(code: code, name: name, message: message, attempted: attempted, remedy: remedy, details: details)
        )
    }

    /// One line: the attempted action, the cause, and the remedy.
    public var description: String {
        var line = "could not \(attempted): \(message)"
        if let name { line += " [\(name)]" }
        if let remedy { line += "; \(remedy)" }
        return line
    }
}

extension DBusError {
    static func disconnected(_ attempted: String) -> DBusError {
        let remedy = "the connection is restored as soon as the bus is back; try again then"
        return DBusError(.disconnected, message: "the bus is not connected", attempted: attempted, remedy: remedy)
    }

    /// Creates an error with ``Code/noResources`` and the same texts.
    public init(_ error: OutOfDescriptors) {
        self.init(.noResources, message: error.message, attempted: error.attempted, remedy: error.remedy)
    }

    /// Returns this error for another attempted action.
    func of(_ attempted: String) -> DBusError {
        DBusError(code, name: name, message: message, attempted: attempted, remedy: remedy, details: details)
    }

    static func noThread(_ attempted: String) -> DBusError {
        let remedy = "raise the limit of processes (ulimit -u)"
        return DBusError(.noResources, message: "no thread can be started", attempted: attempted, remedy: remedy)
    }

    static func noAnswer(_ attempted: String) -> DBusError {
        let remedy = "see whether the bus or the service hangs, or allow it more time"
        return DBusError(.timedOut, message: "no response in time", attempted: attempted, remedy: remedy)
    }

    static func onReadingThread(_ attempted: String) -> DBusError {
        let message = "this thread reads the bus, and would wait for itself"
        let remedy = "observe with another delivery than .immediate, or call the async form in a task"
        return DBusError(.wouldDeadlock, message: message, attempted: attempted, remedy: remedy)
    }

    static func forked(_ attempted: String) -> DBusError {
        let message = "this process was forked after its parent had used a bus, so it can only post"
        let remedy = "call exec, or fork before the first use of the bus"
        return DBusError(.closed, message: message, attempted: attempted, remedy: remedy)
    }

    static func closed(_ attempted: String) -> DBusError {
        DBusError(.closed, message: "this connection was closed", attempted: attempted, remedy: "open another")
    }

    static func answer(name: String, message: String, details: [String: DBusValue], attempted: String) -> DBusError {
        let prefix = "org.freedesktop.DBus.Error."
        let (code, remedy): (Code, String?) =
            switch name.hasPrefix(prefix) ? name.dropFirst(prefix.count) : "" {
            case "LimitsExceeded":
                (.limitsExceeded, "release what is not needed, or raise the limit of the bus or service that refuses")
            case "AccessDenied": (.refused, "the bus's policy must allow it; see its configuration files")
            case "ServiceUnknown", "NameHasNoOwner": (.refused, "start the service")
            case "NoReply": (.timedOut, "the service has ended, or hangs: see its log, and try again")
            case let other where other.hasPrefix("Spawn."):
                (.refused, "see the bus's log for why it could not start the service")
            default: (.refused, nil)
            }
        return DBusError(code, name: name, message: message, attempted: attempted, remedy: remedy, details: details)
    }
}
