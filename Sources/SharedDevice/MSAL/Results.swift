public import Foundation
import SharedDevice

/// A token for the current account.
public final class MSALResult: Sendable {
    private let token: TokenResult
    /// The account of the token.
    public let account: MSALAccount
    /// The authority of the request, or of the configuration if the request has none.
    public let authority: MSALAuthority
    /// The request's correlation id.
    public let correlationId: UUID

    init(_ token: TokenResult, authority: MSALAuthority, correlationId: UUID) {
        self.token = token
        account = MSALAccount(token.account, environment: authority.environment)
        self.authority = authority
        self.correlationId = correlationId
    }

    /// The token. Keep it in memory only, and drop it when the account changes.
    public var accessToken: String { token.accessToken }
    /// The time at which the token expires.
    public var expiresOn: Date? { token.expiresOn }
    /// The scopes of the token.
    public var scopes: [String] { token.scopes }
    /// The ID token, in which the organisation's provider states and signs which person has signed in. `nil` if there
    /// is no such provider, or if the sign-in was granted a scope about the person that the app's manifest lacks.
    /// ``MSALAccount/accountClaims`` identifies the person in any case.
    public var idToken: String? { token.idToken }
    /// The account in its organisation.
    public var tenantProfile: MSALTenantProfile { account.tenantProfile }
    /// The organisation's identifier, from ``tenantProfile``.
    public var tenantId: String? { tenantProfile.tenantId }
    /// The person's identifier, from ``tenantProfile``.
    public var uniqueId: String? { tenantProfile.identifier }
    /// Whether the token lasts longer than usual because the token service is unavailable: never.
    public var extendedLifeTimeToken: Bool { false }
    /// `Bearer`.
    public var authenticationScheme: String { "Bearer" }
    /// The value of an HTTP request's `Authorization` header.
    public var authorizationHeader: String { "\(authenticationScheme) \(accessToken)" }
}

/// A token of the device itself. This module never makes one; see
/// ``MSALPublicClientApplication/getDeviceTokenForSharedDevice(withResource:scopes:completionBlock:)``.
public final class MSALDeviceTokenResult: Sendable {
    /// The token.
    public let accessToken: String
    /// The token service's description of the device.
    public let deviceInformation: String?
    /// The time at which the token expires.
    public let expiresOn: Date?
    /// The scopes of the token.
    public let scopes: [String]
    /// The authority that issued the token.
    public let authority: MSALAuthority?

    /// A result of these parts, for tests of apps.
    public init(
        accessToken: String,
        deviceInformation: String?,
        expiresOn: Date?,
        scopes: [String],
        authority: MSALAuthority?
    ) {
        (self.accessToken, self.deviceInformation, self.expiresOn) = (accessToken, deviceInformation, expiresOn)
        (self.scopes, self.authority) = (scopes, authority)
    }
}

// MARK: Accounts

/// A person's account on this device, as the broker knows it. Two accounts are equal if their identifiers are equal.
public final class MSALAccount: Sendable, Hashable, CustomStringConvertible {
    let account: Account
    /// The sessions whose data the app has to delete; ``MSALPublicClientApplication/cleanupDone(of:)`` reports them.
    let debt: AccountChange?

    /// The host of the authority that the app named. The broker does not need it, and no program should depend on it.
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
    /// The broker's information about the person: `preferred_username`, `oid`, `tid`, and `name` if the broker knows
    /// it.
    public var accountClaims: [String: Any]? { claims }
    /// The account's organisations: always exactly one.
    public var tenantProfiles: [MSALTenantProfile]? { [tenantProfile] }
    /// Whether the account came from the broker: always.
    public var isSSOAccount: Bool { true }

    /// Whether this app still has to delete the data of an earlier session of this account and to report that cleanup;
    /// only for the previous account of ``MSALPublicClientApplication/getCurrentAccount(with:completionBlock:)``.
    /// Beyond MSAL: it is also true after the same person has signed in again.
    public var needsCleanup: Bool { debt != nil }

    /// Name and identity.
    public var description: String { "MSALAccount(\(account.username), \(account.identifier))" }

    /// Whether both are the same account.
    public static func == (left: MSALAccount, right: MSALAccount) -> Bool { left.account == right.account }

    /// Hashes the identifier.
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
    /// The person's identifier within the organisation.
    public let objectId: String
    /// The organisation's identifier; empty if the identity has none.
    public let tenantId: String

    init(_ identifier: String) {
        self.identifier = identifier
        objectId = String(identifier.prefix { $0 != "." })
        tenantId = String(identifier.dropFirst(objectId.count + 1))
    }

    /// Whether both have the same ``identifier``.
    public static func == (left: MSALAccountId, right: MSALAccountId) -> Bool { left.identifier == right.identifier }

    /// Hashes ``identifier``.
    public func hash(into hasher: inout Hasher) { hasher.combine(identifier) }
}

/// An account in an organisation.
public final class MSALTenantProfile: Sendable {
    /// The person's identifier within the organisation.
    public let identifier: String?
    /// The organisation's identifier; empty if the account's identity has none.
    public let tenantId: String?
    /// The same as ``MSALAccount/environment``.
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
    /// The same as ``MSALAccount/accountClaims``.
    public var claims: [String: Any]? { texts }
}

// MARK: The device

/// The broker's information about the device.
public final class MSALDeviceInformation: Sendable {
    /// Whether the device is shared.
    public let deviceMode: MSALDeviceMode
    /// Whether the broker responded. The broker takes the place of the SSO extension of iOS.
    public let hasAADSSOExtension: Bool
    /// A QR code and a PIN if people can sign in with a badge, whose number may be in a QR code.
    public let configuredPreferredAuthMethod: MSALPreferredAuthMethod
    private let details: [String: String]

    init(_ mode: MSALDeviceMode, answer: DeviceInformation?) {
        deviceMode = mode
        hasAADSSOExtension = answer != nil
        configuredPreferredAuthMethod = answer?.takesBadges == true ? .qrpin : .notConfigured
        var details: [String: String] = [:]
        details["organization"] = answer?.organization
        details["brokerVersion"] = answer?.brokerVersion
        self.details = details
    }

    /// Always ``MSALPlatformSSOStatus/notEnabled``: Platform SSO is macOS's.
    public var platformSSOStatus: MSALPlatformSSOStatus { .notEnabled }

    /// The strings `brokerVersion`, and `organization` if the device's configuration names one.
    public var extraDeviceInformation: [AnyHashable: Any] { details }
}

/// Whether this device is shared. As in MSAL there are two modes; an unknown mode is an error.
public enum MSALDeviceMode: UInt, Sendable {
    /// Not shared, according to the broker.
    case `default` = 0
    /// One account at a time, signed in and out for all apps.
    case shared = 1
}

/// The state of macOS's Platform SSO on the device.
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

/// The sign-in method that the administrator prefers.
public enum MSALPreferredAuthMethod: UInt, Sendable {
    /// No preference.
    case notConfigured = 0
    /// A QR code and a PIN, or another badge and a PIN.
    case qrpin = 1
}
