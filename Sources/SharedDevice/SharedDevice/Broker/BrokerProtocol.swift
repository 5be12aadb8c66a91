package import DBusTransport

/// What broker and apps say to each other: the D-Bus service `org.notifycenter.SharedDevice1`.
///
/// Requests and answers are dictionaries, so that both sides can grow. A refusal is a D-Bus error whose name ends in the
/// ``SharedDeviceError/Code``. The broadcast that anything changed is the Darwin notification
/// `SHARED_MODE_CURRENT_ACCOUNT_CHANGED`, sent by the connection that owns the service's name.
package enum BrokerProtocol {
    package static let busName = "org.notifycenter.SharedDevice1"
    package static let path = "/org/notifycenter/SharedDevice"
    package static let interface = "org.notifycenter.SharedDevice1"
    /// Grows by one with each method, field or error that is added. What is incompatible gets an interface of another name.
    package static let version: UInt32 = 1
    package static let errorPrefix = "org.notifycenter.SharedDevice1.Error."

    package enum Method: String, Sendable, CaseIterable {
        case getDeviceInformation = "GetDeviceInformation"
        case getCurrentAccount = "GetCurrentAccount"
        case signIn = "SignIn"
        /// The app no longer waits for a sign-in.
        case cancelSignIn = "CancelSignIn"
        case acquireTokenSilently = "AcquireTokenSilently"
        case signOut = "SignOut"
        /// An app's report on a cleanup.
        case reportCleanup = "ReportCleanup"
        /// How far a cleanup round is; answers when it has changed, or after a while.
        case getRound = "GetRound"
        /// Somebody is using the device.
        case reportActivity = "ReportActivity"
        /// For administrators: signs out whoever is signed in.
        case signOutAnyone = "SignOutAnyone"
        /// For administrators: declares an app's cleanup done.
        case waive = "Waive"
        /// For administrators: makes the device one of the organisation's.
        case join = "Join"
        /// For administrators: the device leaves the organisation.
        case leave = "Leave"
        /// For administrators: the apps that are connected, and those that hold data of the open session.
        case getRunningApps = "GetRunningApps"
    }

    /// The Darwin notification that the device's mode has changed. It is posted beside the broadcast of every change, for apps that follow no
    /// account.
    package static let modeChangedNotification = "SHARED_MODE_DEVICE_MODE_CHANGED"

    /// A dictionary of the protocol that lacks a field or has one of another type.
    package struct Malformed: Error {
        package let field: String

        package init(_ field: String) { self.field = field }
    }

    package typealias Fields = [String: DBusValue]
}

extension Account {
    package var fields: DBusValue {
        var fields: BrokerProtocol.Fields = ["identifier": .string(identifier), "username": .string(username)]
        if let displayName { fields["displayName"] = .string(displayName) }
        return .fields(fields)
    }

    package init(_ value: DBusValue?) throws(BrokerProtocol.Malformed) {
        guard let fields = value?.fieldsValue, let identifier = fields["identifier"]?.stringValue, !identifier.isEmpty,
            let username = fields["username"]?.stringValue
        else { throw BrokerProtocol.Malformed("account") }
        self.init(identifier: identifier, username: username, displayName: fields["displayName"]?.stringValue)
    }
}

/// Who is signed in, and since which change of the device: the answer to “get current account”.
package struct DeviceSession: Sendable, Hashable {
    package let account: Account?
    package let epoch: UInt64

    package init(account: Account?, epoch: UInt64) {
        self.account = account
        self.epoch = epoch
    }

    package var fields: BrokerProtocol.Fields {
        var fields: BrokerProtocol.Fields = ["epoch": .uint64(epoch)]
        if let account { fields["account"] = account.fields }
        return fields
    }

    package init(_ fields: BrokerProtocol.Fields) throws(BrokerProtocol.Malformed) {
        guard let epoch = fields["epoch"]?.unsignedValue else { throw BrokerProtocol.Malformed("epoch") }
        self.epoch = epoch
        account = if let value = fields["account"] { try Account(value) } else { nil }
    }
}

/// A token as it travels.
package struct WireToken: Sendable {
    package let value: String
    package let scopes: [String]
    /// Seconds since 1970, UTC.
    package let expiresAt: Double

    package init(value: String, scopes: [String], expiresAt: Double) {
        self.value = value
        self.scopes = scopes
        self.expiresAt = expiresAt
    }

    package var fields: DBusValue {
        .fields([
            "value": .string(value), "scopes": .array(scopes.map(DBusValue.string), of: "s"),
            "expiresAt": .double(expiresAt),
        ])
    }

    package init(_ value: DBusValue?) throws(BrokerProtocol.Malformed) {
        guard let fields = value?.fieldsValue, let text = fields["value"]?.stringValue,
            let scopes = fields["scopes"]?.stringsValue, case .double(let expiresAt)? = fields["expiresAt"]
        else { throw BrokerProtocol.Malformed("token") }
        self.init(value: text, scopes: scopes, expiresAt: expiresAt)
    }
}
