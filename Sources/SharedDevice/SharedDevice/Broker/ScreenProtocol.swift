import DBus
import FoundationEssentials

/// What is on the screen of the device, or should be there. A program of the person's session shows it, and asks the
/// broker with `GetScreen`.
@_spi(Extensions) public enum ScreenContent: String, Sendable, CaseIterable {
    /// Nothing of this program: the person works, or the device does not sign people in with passwords.
    case nothing
    /// The session ends soon.
    case warning
    /// Only the person of the session may go on.
    case lock
    /// No person is signed in, and the next sign-in waits for a cleanup.
    case cleanup
    /// No person is signed in.
    case signIn
}

/// The response to `GetScreen`.
@_spi(Extensions) public struct ScreenAnswer: Sendable, Hashable {
    /// Changes with every other value. It goes into the next request.
    @_spi(Extensions) public var revision: UInt64
    @_spi(Extensions) public var show: ScreenContent
    /// When the session ends by itself, for a warning or a lock.
    @_spi(Extensions) public var end: SessionEnd?
    /// The person of the session, for a warning or a lock.
    @_spi(Extensions) public var username: String?
    @_spi(Extensions) public var displayName: String?
    /// How a person can sign in or come back.
    @_spi(Extensions) public var signInMethods: [BrokerProtocol.SignInMethod]

    @_spi(Extensions) public init(
        revision: UInt64,
        show: ScreenContent,
        end: SessionEnd? = nil,
        username: String? = nil,
        displayName: String? = nil,
        signInMethods: [BrokerProtocol.SignInMethod] = []
    ) {
        (self.revision, self.show, self.end) = (revision, show, end)
        (self.username, self.displayName, self.signInMethods) = (username, displayName, signInMethods)
    }

    @_spi(Extensions) public var fields: BrokerProtocol.Fields {
        var fields: BrokerProtocol.Fields = [
            "revision": .uint64(revision), "show": .string(show.rawValue),
            "signInMethods": .array(signInMethods.map { .string($0.rawValue) }, of: "s"),
        ]
        if let end { fields.merge(end.fields) { $1 } }
        if let username { fields["username"] = .string(username) }
        if let displayName { fields["displayName"] = .string(displayName) }
        return fields
    }

    @_spi(Extensions) public init(_ fields: BrokerProtocol.Fields) throws(BrokerProtocol.Malformed) {
        guard let revision = fields["revision"]?.unsignedValue else { throw BrokerProtocol.Malformed("revision") }
        guard let show = fields["show"]?.stringValue.flatMap(ScreenContent.init) else {
            throw BrokerProtocol.Malformed("show")
        }
        (self.revision, self.show, end) = (revision, show, SessionEnd(fields))
        username = fields["username"]?.stringValue
        displayName = fields["displayName"]?.stringValue
        // Unknown methods come from later versions.
        signInMethods = (fields["signInMethods"]?.stringsValue ?? []).compactMap(BrokerProtocol.SignInMethod.init)
    }
}

extension BrokerAdministration {
    /// Asks what should be on the screen. The response comes at once if it is news to the caller, and otherwise with
    /// the next change or after `wait`. After an error the screen keeps its content. A session stays locked only while
    /// the screen program asks with `shows: .lock`, at most 10 seconds after each response.
    ///
    /// - Parameters:
    ///   - shows: What is on the screen now.
    ///   - revision: The revision of the last response; `nil` if there is none.
    ///   - wait: How long to wait for a change: at most 60 seconds. At a locked session it is at most 10 seconds, and
    ///     half a second if `shows` is not `lock`.
    @_spi(Extensions) public func screen(
        shows: ScreenContent,
        revision: UInt64?,
        wait: Duration
    ) async throws(SharedDeviceError) -> ScreenAnswer {
        let attempted = "ask what the screen has to show"
        var request: BrokerProtocol.Fields = [
            "application": .string(BrokerProtocol.screenIdentifier), "shows": .string(shows.rawValue),
            "wait": .double(wait / .seconds(1)),
        ]
        if let revision { request["revision"] = .uint64(revision) }
        let fields = try await call(.getScreen, request, attempted: attempted, timeout: wait + .seconds(25))
        return try BrokerProtocol.decoded(attempted) { () throws(BrokerProtocol.Malformed) in try ScreenAnswer(fields) }
    }
}
