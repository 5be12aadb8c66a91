public import DBus
import FoundationEssentials

/// The protocol between broker and apps: the D-Bus service `org.notifycenter.SharedDevice1`.
///
/// Requests and responses are dictionaries, so that both sides can add fields. A refusal is a D-Bus error whose name
/// ends in the ``SharedDeviceError/Code``. The broadcast of a change is a Darwin notification
/// (``NotificationName/sharedModeCurrentAccountChanged``) of the connection that owns the service's name.
@_spi(Extensions) public enum BrokerProtocol {
    @_spi(Extensions) public static let busName = "org.notifycenter.SharedDevice1"
    @_spi(Extensions) public static let path = "/org/notifycenter/SharedDevice"
    @_spi(Extensions) public static let interface = "org.notifycenter.SharedDevice1"
    /// Grows by one with each added method, field or error. An incompatible change gets an interface with a new name.
    @_spi(Extensions) public static let version: UInt32 = 7
    @_spi(Extensions) public static let errorPrefix = "org.notifycenter.SharedDevice1.Error."

    @_spi(Extensions) public enum Method: String, Sendable, CaseIterable {
        case getDeviceInformation = "GetDeviceInformation"
        case getCurrentAccount = "GetCurrentAccount"
        case signIn = "SignIn"
        /// A prompt starts a sign-in. The prompt is a program that asks the person, and gets neither account nor token.
        case beginSignIn = "BeginSignIn"
        case completeSignIn = "CompleteSignIn"
        case awaitSignIn = "AwaitSignIn"
        case cancelSignIn = "CancelSignIn"
        case acquireTokenSilently = "AcquireTokenSilently"
        case signOut = "SignOut"
        case reportCleanup = "ReportCleanup"
        /// The state of a cleanup round. The response comes when the state has changed, or after a while.
        case getRound = "GetRound"
        case reportActivity = "ReportActivity"
        /// For the screen program: what should be on the screen. The response comes when it has changed, or after a
        /// while.
        case getScreen = "GetScreen"
        /// For the service that talks to the organisation's provider: sessions that have ended at the provider.
        case reportProviderEvents = "ReportProviderEvents"
        /// For administrators: signs out the current account, whichever it is.
        case signOutAnyone = "SignOutAnyone"
        case waive = "Waive"
        case join = "Join"
        case leave = "Leave"
        /// For administrators: a user was removed from the directory, and the broker forgets the name.
        case forgetAccount = "ForgetAccount"
        /// For administrators: the connected apps, and the apps that hold data of the open session.
        case getRunningApps = "GetRunningApps"
        /// For administrators: the device's status for a console. The response comes when it has changed, or after a
        /// while.
        case getStatus = "GetStatus"
        /// For administrators: entries of the log. The response comes when there are some, or after a while.
        case getLog = "GetLog"
        /// For the program that enforces cleanups: the overdue apps. The response comes when there is one, or after a
        /// while.
        case getOverdue = "GetOverdue"
        case reportEnforcement = "ReportEnforcement"
    }

    @_spi(Extensions) public enum SignInMethod: String, Sendable, Hashable, CaseIterable {
        /// The prompt asks for the name and password of a user in the device's own directory.
        case password
        case browser
        case deviceCode
        /// The person shows a badge and types a PIN, with `SignIn` or at a prompt of the method `password`.
        case badge
    }

    @_spi(Extensions) public static let promptIdentifier = "org.notifycenter.shared-device-sign-in"
    /// The program that reports the input of a graphical session.
    @_spi(Extensions) public static let activityIdentifier = "org.notifycenter.shared-device-activity"
    /// The program that shows warnings, the lock and the sign-in on the screen.
    @_spi(Extensions) public static let screenIdentifier = "org.notifycenter.shared-device-screen"

    /// The Darwin notification of a change of the device's mode. It is posted together with the broadcast of every
    /// change, for apps that do not follow the account.
    @_spi(Extensions) public static let modeChangedNotification = "SHARED_MODE_DEVICE_MODE_CHANGED"

    /// A dictionary of the protocol in which a field is missing or has the wrong type.
    @_spi(Extensions) public struct Malformed: Error {
        @_spi(Extensions) public let field: String

        @_spi(Extensions) public init(_ field: String) { self.field = field }
    }

    @_spi(Extensions) public typealias Fields = [String: DBusValue]

    /// Returns the result of `decode`, which reads a response of the broker.
    static func decoded<Value>(
        _ attempted: String,
        _ decode: () throws(Malformed) -> Value
    ) throws(SharedDeviceError) -> Value {
        do throws(Malformed) {
            return try decode()
        } catch {
            let message = "the broker's response lacks “\(error.field)”; use a broker and a program of the same version"
            throw SharedDeviceError(.brokerFailed, attempted: attempted, message: message)
        }
    }

    static func message(
        _ method: Method,
        _ fields: Fields? = nil,
        options: DBusMessage.CallOptions = []
    ) throws(DBusError) -> DBusMessage {
        try .methodCall(
            destination: busName,
            path: path,
            interface: interface,
            member: method.rawValue,
            arguments: fields.map { [.fields($0)] } ?? [],
            options: options
        )
    }

    /// The fields of a response, which is one dictionary.
    static func fields(_ response: [DBusValue], _ attempted: String) throws(SharedDeviceError) -> Fields {
        if let fields = response.first?.fieldsValue { return fields }
        let message = "the broker's response is not a dictionary"
        throw SharedDeviceError(.brokerFailed, attempted: attempted, message: message)
    }
}

extension Account {
    @_spi(Extensions) public var fields: DBusValue {
        var fields: BrokerProtocol.Fields = ["identifier": .string(identifier), "username": .string(username)]
        if let displayName { fields["displayName"] = .string(displayName) }
        return .fields(fields)
    }

    @_spi(Extensions) public init(_ value: DBusValue?) throws(BrokerProtocol.Malformed) {
        guard let fields = value?.fieldsValue, let identifier = fields["identifier"]?.stringValue, !identifier.isEmpty,
            let username = fields["username"]?.stringValue
        else { throw BrokerProtocol.Malformed("account") }
        self.init(identifier: identifier, username: username, displayName: fields["displayName"]?.stringValue)
    }
}

/// The current account and the epoch of the change that made it current: the response to “get current account”.
@_spi(Extensions) public struct DeviceSession: Sendable, Hashable {
    @_spi(Extensions) public let account: Account?
    @_spi(Extensions) public let epoch: UInt64

    @_spi(Extensions) public init(account: Account?, epoch: UInt64) { (self.account, self.epoch) = (account, epoch) }

    @_spi(Extensions) public var fields: BrokerProtocol.Fields {
        var fields: BrokerProtocol.Fields = ["epoch": .uint64(epoch)]
        if let account { fields["account"] = account.fields }
        return fields
    }

    @_spi(Extensions) public init(_ fields: BrokerProtocol.Fields) throws(BrokerProtocol.Malformed) {
        guard let epoch = fields["epoch"]?.unsignedValue else { throw BrokerProtocol.Malformed("epoch") }
        self.epoch = epoch
        account = if let value = fields["account"] { try Account(value) } else { nil }
    }
}

@_spi(Extensions) public struct WireToken: Sendable {
    @_spi(Extensions) public let value: String
    @_spi(Extensions) public let scopes: [String]
    /// In seconds since 1970, UTC.
    @_spi(Extensions) public let expiresAt: Double
    /// The provider's ID token, if the app may have it.
    @_spi(Extensions) public let idToken: String?

    @_spi(Extensions) public init(value: String, scopes: [String], expiresAt: Double, idToken: String? = nil) {
        self.value = value
        self.scopes = scopes
        self.expiresAt = expiresAt
        self.idToken = idToken
    }

    @_spi(Extensions) public var fields: DBusValue {
        var fields: BrokerProtocol.Fields = [
            "value": .string(value), "scopes": .array(scopes.map(DBusValue.string), of: "s"),
            "expiresAt": .double(expiresAt),
        ]
        fields["idToken"] = idToken.map(DBusValue.string)
        return .fields(fields)
    }

    @_spi(Extensions) public init(_ value: DBusValue?) throws(BrokerProtocol.Malformed) {
        guard let fields = value?.fieldsValue, let text = fields["value"]?.stringValue,
            let scopes = fields["scopes"]?.stringsValue, case .double(let expiresAt)? = fields["expiresAt"]
        else { throw BrokerProtocol.Malformed("token") }
        self.init(value: text, scopes: scopes, expiresAt: expiresAt, idToken: fields["idToken"]?.stringValue)
    }
}

extension TokenResult {
    init(_ fields: BrokerProtocol.Fields) throws(BrokerProtocol.Malformed) {
        let token = try WireToken(fields["token"])
        (accessToken, scopes, idToken) = (token.value, token.scopes, token.idToken)
        expiresOn = Date(timeIntervalSince1970: token.expiresAt)
        account = try Account(fields["account"])
    }
}

/// A session whose data an app still has to delete, according to the broker's ledger.
@_spi(Extensions) public struct OwedSession: Sendable, Hashable {
    @_spi(Extensions) public let epoch: UInt64
    @_spi(Extensions) public let account: Account?
    /// A number that changes when a process of the app that had the account ends without a report, and from then on at
    /// each start of the broker; 0 before. Such a process may have stored data after another one's cleanup: a receipt
    /// counts only under the mark under which its cleanup began.
    @_spi(Extensions) public let mark: UInt64
    /// Whether the broker also waits for another process of the app. Until that process learns of the sign-out, it may
    /// store data.
    @_spi(Extensions) public let isShared: Bool

    @_spi(Extensions) public init(epoch: UInt64, account: Account?, mark: UInt64 = 0, isShared: Bool = false) {
        self.epoch = epoch
        self.account = account
        self.mark = mark
        self.isShared = isShared
    }

    @_spi(Extensions) public var fields: DBusValue {
        var fields: BrokerProtocol.Fields = ["epoch": .uint64(epoch)]
        if let account { fields["account"] = account.fields }
        if mark > 0 { fields["mark"] = .uint64(mark) }
        if isShared { fields["shared"] = .boolean(true) }
        return .fields(fields)
    }

    @_spi(Extensions) public init(_ value: DBusValue) throws(BrokerProtocol.Malformed) {
        guard let fields = value.fieldsValue, let epoch = fields["epoch"]?.unsignedValue else {
            throw BrokerProtocol.Malformed("owed")
        }
        mark = fields["mark"]?.unsignedValue ?? 0
        isShared = fields["shared"]?.booleanValue ?? false
        self.epoch = epoch
        account = if let value = fields["account"] { try Account(value) } else { nil }
    }
}

@_spi(Extensions) public struct SessionAnswer: Sendable, Hashable {
    @_spi(Extensions) public let session: DeviceSession
    /// The sessions that this app has to clean up according to the ledger, oldest first.
    @_spi(Extensions) public let owed: [OwedSession]
    /// Whether an account is signed in that is withheld from this app until it has cleaned up.
    @_spi(Extensions) public let isWithheld: Bool
    /// Whether the cleanup policy is `strict` or `enforced`: an app that owes a cleanup gets neither account nor token.
    @_spi(Extensions) public let isStrict: Bool

    @_spi(Extensions) public init(
        session: DeviceSession,
        owed: [OwedSession] = [],
        isWithheld: Bool = false,
        isStrict: Bool = false
    ) {
        self.session = session
        self.owed = owed
        self.isWithheld = isWithheld
        self.isStrict = isStrict
    }

    @_spi(Extensions) public var fields: BrokerProtocol.Fields {
        var fields = session.fields
        if !owed.isEmpty { fields["owed"] = .array(owed.map(\.fields), of: "a{sv}") }
        if isWithheld { fields["withheld"] = .boolean(true) }
        if isStrict { fields["strict"] = .boolean(true) }
        return fields
    }

    @_spi(Extensions) public init(_ fields: BrokerProtocol.Fields) throws(BrokerProtocol.Malformed) {
        session = try DeviceSession(fields)
        var owed: [OwedSession] = []
        for value in fields["owed"]?.elementsValue ?? [] { owed.append(try OwedSession(value)) }
        self.owed = owed
        isWithheld = fields["withheld"]?.booleanValue ?? false
        isStrict = fields["strict"]?.booleanValue ?? false
    }
}

extension CleanupReport {
    @_spi(Extensions) public var fields: DBusValue {
        .fields([
            "session": .uint64(session), "endedAt": .double(endedAt.timeIntervalSince1970),
            "outcome": .string(outcome.rawValue), "apps": .array(apps.map(\.fields), of: "a{sv}"),
        ])
    }

    @_spi(Extensions) public init(_ value: DBusValue?) throws(BrokerProtocol.Malformed) {
        guard let fields = value?.fieldsValue, let session = fields["session"]?.unsignedValue,
            // The limit is the year 9999, which every calendar supports.
            case .double(let endedAt)? = fields["endedAt"], (0...253_402_300_799).contains(endedAt),
            let outcome = fields["outcome"]?.stringValue.flatMap(Outcome.init)
        else { throw BrokerProtocol.Malformed("round") }
        var apps: [App] = []
        for value in fields["apps"]?.elementsValue ?? [] { apps.append(try App(value)) }
        self.init(session: session, endedAt: Date(timeIntervalSince1970: endedAt), outcome: outcome, apps: apps)
    }
}

extension CleanupReport.App {
    var fields: DBusValue {
        var fields: BrokerProtocol.Fields = [
            "identifier": .string(identifier), "progress": .string(progress.rawValue), "isRunning": .boolean(isRunning),
        ]
        let times = [("toldAfter", toldAfter), ("begunAfter", begunAfter), ("finishedAfter", finishedAfter)]
        for case (let key, let time?) in times { fields[key] = .double(time) }
        if let user { fields["user"] = .uint32(user) }
        if let detail { fields["detail"] = .string(detail) }
        return .fields(fields)
    }

    init(_ value: DBusValue) throws(BrokerProtocol.Malformed) {
        guard let fields = value.fieldsValue, let identifier = fields["identifier"]?.stringValue,
            let progress = fields["progress"]?.stringValue.flatMap(CleanupReport.Progress.init)
        else { throw BrokerProtocol.Malformed("apps") }
        let time: (String) -> Double? = { key in
            // A century is longer than any round.
            guard case .double(let seconds)? = fields[key], abs(seconds) <= 3.2e9 else { return nil }
            return seconds
        }
        self.init(
            identifier: identifier,
            user: fields["user"]?.unsignedValue.flatMap(UInt32.init(exactly:)),
            progress: progress,
            toldAfter: time("toldAfter"),
            begunAfter: time("begunAfter"),
            finishedAfter: time("finishedAfter"),
            detail: fields["detail"]?.stringValue,
            isRunning: fields["isRunning"]?.booleanValue ?? false
        )
    }
}
