public import Foundation
import SharedDevice

/// A token for the current account.
public final class MSALResult: Sendable {
    /// The token. Keep it in memory only, and drop it when the account changes.
    public let accessToken: String
    /// When it ends.
    public let expiresOn: Date?
    /// What it is good for.
    public let scopes: [String]
    /// The account that it belongs to.
    public let account: MSALAccount
    /// The organisation's provider's word of who has signed in, as the provider has signed it; `nil` where there is no such provider, or where the app's
    /// manifest lacks a scope about the person that the sign-in was granted. ``MSALAccount/accountClaims`` says who the person is in any case.
    public let idToken: String?
    /// The authority of the request or, where that has none, of the configuration.
    public let authority: MSALAuthority
    /// The request's correlation id.
    public let correlationId: UUID

    init(_ token: TokenResult, authority: MSALAuthority, correlationId: UUID) {
        accessToken = token.accessToken
        expiresOn = token.expiresOn
        scopes = token.scopes
        account = MSALAccount(token.account, environment: authority.environment)
        idToken = token.idToken
        self.authority = authority
        self.correlationId = correlationId
    }

    /// The account in its organisation.
    public var tenantProfile: MSALTenantProfile { account.tenantProfile }
    /// The organisation; the same as ``tenantProfile``'s ``MSALTenantProfile/tenantId``.
    public var tenantId: String? { tenantProfile.tenantId }
    /// The person; the same as ``tenantProfile``'s ``MSALTenantProfile/identifier``.
    public var uniqueId: String? { tenantProfile.identifier }
    /// Whether the token lasts longer than usual because the token service is away: never.
    public var extendedLifeTimeToken: Bool { false }
    /// `Bearer`.
    public var authenticationScheme: String { "Bearer" }
    /// The value of an HTTP request's `Authorization` header.
    public var authorizationHeader: String { "\(authenticationScheme) \(accessToken)" }
}

// MARK: Accounts

/// A person's account on this device, as the broker knows it. Two accounts are equal when their identifiers are.
public final class MSALAccount: Sendable, Hashable, CustomStringConvertible {
    let account: Account
    /// The sessions whose data the app has to delete; ``MSALPublicClientApplication/cleanupDone(of:)`` reports them.
    let debt: AccountChange?

    /// The host of the authority that the app named. The broker needs none, and no program should depend on it.
    public let environment: String

    init(_ account: Account, environment: String, debt: AccountChange? = nil) {
        self.account = account
        self.environment = environment
        self.debt = debt
    }

    /// The name that the person signs in with.
    public var username: String? { account.username }
    /// The account's identity: object id and tenant id, joined by a dot.
    public var identifier: String? { account.identifier }
    /// The identity in its parts.
    public var homeAccountId: MSALAccountId? { MSALAccountId(account.identifier) }
    /// What the broker says of the person: `preferred_username`, `oid`, `tid`, and `name` if the broker knows it.
    public var accountClaims: [String: Any]? { claims }
    /// The account's organisations: always one, the account's own.
    public var tenantProfiles: [MSALTenantProfile]? { [tenantProfile] }
    /// Whether the account came from the broker: always.
    public var isSSOAccount: Bool { true }

    /// Whether this app still has to delete what it holds of this account's earlier stay, and to report it. It can be true of the previous
    /// account, as ``MSALPublicClientApplication/getCurrentAccount(with:completionBlock:)`` gives it, and of no other. Beyond MSAL: it is also
    /// true when the same person has come back, which no comparison with the current account shows.
    public var needsCleanup: Bool { debt != nil }

    /// Name and identity.
    public var description: String { "MSALAccount(\(account.username), \(account.identifier))" }

    /// Whether both are the same account.
    public static func == (left: MSALAccount, right: MSALAccount) -> Bool { left.account == right.account }

    /// Feeds what `==` compares.
    public func hash(into hasher: inout Hasher) { hasher.combine(account) }

    var tenantProfile: MSALTenantProfile {
        MSALTenantProfile(MSALAccountId(account.identifier), environment: environment, claims: claims)
    }

    private var claims: [String: String] {
        let id = MSALAccountId(account.identifier)
        var claims = ["preferred_username": account.username, "oid": id.objectId, "tid": id.tenantId]
        claims["name"] = account.displayName
        return claims
    }
}

/// The parts of an account's identity.
public final class MSALAccountId: Sendable, Hashable {
    /// ``objectId`` and ``tenantId``, joined by a dot.
    public let identifier: String
    /// The person within the organisation.
    public let objectId: String
    /// The organisation; empty if the identity names none.
    public let tenantId: String

    init(_ identifier: String) {
        self.identifier = identifier
        let dot = identifier.firstIndex(of: ".")
        objectId = String(identifier[..<(dot ?? identifier.endIndex)])
        tenantId = dot.map { String(identifier[identifier.index(after: $0)...]) } ?? ""
    }

    /// Whether both have the same ``identifier``.
    public static func == (left: MSALAccountId, right: MSALAccountId) -> Bool { left.identifier == right.identifier }

    /// Feeds what `==` compares.
    public func hash(into hasher: inout Hasher) { hasher.combine(identifier) }
}

/// An account in an organisation.
public final class MSALTenantProfile: Sendable {
    /// The person within the organisation.
    public let identifier: String?
    /// The organisation; empty if the account's identity names none.
    public let tenantId: String?
    /// As ``MSALAccount/environment``.
    public let environment: String?
    private let texts: [String: String]

    fileprivate init(_ id: MSALAccountId, environment: String, claims: [String: String]) {
        identifier = id.objectId
        tenantId = id.tenantId
        self.environment = environment
        texts = claims
    }

    /// Whether this is the account's own organisation: always.
    public var isHomeTenantProfile: Bool { true }
    /// As ``MSALAccount/accountClaims``.
    public var claims: [String: Any]? { texts }
}

// MARK: The device

/// What the broker says of the device.
public final class MSALDeviceInformation: Sendable {
    /// Whether the device is shared.
    public let deviceMode: MSALDeviceMode
    /// Whether the broker answered. It is what the SSO extension is on iOS.
    public let hasAADSSOExtension: Bool
    private let details: [String: String]

    init(_ mode: MSALDeviceMode, answer: DeviceInformation?) {
        deviceMode = mode
        hasAADSSOExtension = answer != nil
        var details: [String: String] = [:]
        details["organization"] = answer?.organization
        details["brokerVersion"] = answer?.brokerVersion
        self.details = details
    }

    /// Always ``MSALPreferredAuthMethod/notConfigured``: the broker's configuration has no such setting.
    public var configuredPreferredAuthMethod: MSALPreferredAuthMethod { .notConfigured }

    /// Always ``MSALPlatformSSOStatus/notEnabled``: Platform SSO is macOS's.
    public var platformSSOStatus: MSALPlatformSSOStatus { .notEnabled }

    /// Strings: `brokerVersion`, and `organization` if the device's configuration names one.
    public var extraDeviceInformation: [AnyHashable: Any] { details }
}

/// Whether this device is shared. As in MSAL there are two modes; a mode that is not known is an error, and no value of this type.
public enum MSALDeviceMode: UInt, Sendable {
    /// Not shared: the broker says so.
    case `default` = 0
    /// One account at a time, signed in and out for all apps.
    case shared = 1
}

/// What macOS's Platform SSO is like on the device.
public enum MSALPlatformSSOStatus: UInt, Sendable {
    /// It is not configured. The broker knows no other status.
    case notEnabled = 0
    /// It is configured, and the device is not registered.
    case enabledNotRegistered
    /// It is configured, and the device is registered.
    case enabledAndRegistered
    /// The device has to be registered again.
    case registrationNeedsRepair
}

/// The way to sign in that the administrator prefers.
public enum MSALPreferredAuthMethod: UInt, Sendable {
    /// None in particular. The broker knows no other.
    case notConfigured = 0
    /// A QR code and a PIN.
    case qrpin = 1
}
