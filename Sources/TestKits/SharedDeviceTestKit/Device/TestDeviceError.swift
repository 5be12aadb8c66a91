/// Why a test's device did not do what it was asked for: what was attempted, and what happened.
public struct TestDeviceError: Error, Sendable, CustomStringConvertible {
    /// The kind of failure. A struct, so that a new kind breaks no `switch`.
    public struct Code: Sendable, Hashable, CustomStringConvertible {
        /// The code's name.
        public let description: String

        /// A program of the device, or of an app, is not where it was looked for.
        public static let programMissing = Code(description: "program missing")
        /// The bus or the broker does not start.
        public static let deviceFailed = Code(description: "device failed")
        /// The device has no such app or user, or the app does not run.
        public static let notThere = Code(description: "not there")
        /// Something did not happen in time.
        public static let timeout = Code(description: "timeout")
        /// An app is not clean.
        public static let notClean = Code(description: "not clean")
        /// A search proves nothing, because what it looks for was not there before either.
        public static let provesNothing = Code(description: "proves nothing")
        /// Files of an app cannot be read or written.
        public static let filesFailed = Code(description: "files failed")
    }

    /// The kind of failure.
    public let code: Code
    /// For people, with a table of the apps where that helps.
    public let description: String

    init(_ code: Code, _ description: String) {
        self.code = code
        self.description = description
    }
}
