public import Foundation

/// The address of a token service.
///
/// It has no effect: the broker knows the users of the device, whichever authority the app names. A ported app keeps
/// its authority, and ``MSALResult/authority`` returns it.
public class MSALAuthority: CustomStringConvertible, @unchecked Sendable {
    // Unchecked because the class has subclasses. They add no property, and `url` never changes.

    /// The address.
    public let url: URL

    /// Creates an authority from an address.
    ///
    /// - Throws: ``MSALInternalError/internalErrorInvalidParameter`` unless `url` is an `https` address with a host.
    public init(url: URL) throws {
        guard url.scheme?.lowercased() == "https", url.host?.isEmpty == false else {
            throw NSError.invalidParameter("could not use the authority “\(url)”: it is no https address")
        }
        self.url = url
    }

    fileprivate init(known url: URL) { self.url = url }

    /// The address as text. MSAL's own text differs, so no program should parse it.
    public var description: String { url.absoluteString }

    var environment: String { url.host ?? "" }

    /// The default: any organisation. Unwrapped because the literal is a valid URL.
    static let common = MSALAuthority(known: URL(string: "https://login.microsoftonline.com/common")!)
}

/// The authority of an organisation. It has no effect here; see ``MSALAuthority``.
public final class MSALAADAuthority: MSALAuthority, @unchecked Sendable {
    /// Creates an authority from an address; throws like ``MSALAuthority/init(url:)``.
    public override init(url: URL) throws { try super.init(url: url) }

    /// Creates an authority from the address's host and a tenant; with `nil` as the tenant the address is used
    /// unchanged.
    ///
    /// - Throws: ``MSALInternalError/internalErrorInvalidParameter`` unless host and tenant form an `https` address.
    public init(url: URL, rawTenant: String?) throws {
        var parts = URLComponents(url: url, resolvingAgainstBaseURL: true)
        if let rawTenant { parts?.path = "/\(rawTenant)" }
        try super.init(url: parts?.url ?? url)
    }

    /// Creates an authority from a national cloud and an audience.
    ///
    /// - Throws: ``MSALInternalError/internalErrorInvalidParameter`` for a single-organisation audience without
    ///   `rawTenant`.
    public convenience init(
        cloudInstance: MSALAzureCloudInstance,
        audienceType: MSALAudienceType,
        rawTenant: String?
    ) throws {
        try self.init(environment: cloudInstance.host, audienceType: audienceType, rawTenant: rawTenant)
    }

    /// Creates an authority from the host of a cloud and an audience.
    ///
    /// - Throws: ``MSALInternalError/internalErrorInvalidParameter`` for a single-organisation audience without
    ///   `rawTenant`, and for an `environment` that is not a host.
    public convenience init(environment: String, audienceType: MSALAudienceType, rawTenant: String?) throws {
        let tenant: String
        switch audienceType {
        case .azureADAndPersonalMicrosoftAccountAudience: tenant = "common"
        case .azureADMultipleOrgsAudience: tenant = "organizations"
        case .personalMicrosoftAccountAudience: tenant = "consumers"
        case .azureADMyOrgOnlyAudience:
            guard let rawTenant else {
                throw NSError.invalidParameter("could not make the authority: this audience needs a tenant")
            }
            tenant = rawTenant
        }
        guard let url = URL(string: "https://\(environment)"), url.host == environment else {
            throw NSError.invalidParameter("could not make the authority: “\(environment)” is no host")
        }
        try self.init(url: url, rawTenant: tenant)
    }
}

/// The authority of a customer directory. It has no effect here; see ``MSALAuthority``.
public final class MSALB2CAuthority: MSALAuthority, @unchecked Sendable {}

/// The authority of an external tenant. It has no effect here; see ``MSALAuthority``.
public final class MSALCIAMAuthority: MSALAuthority, @unchecked Sendable {
    /// Creates an authority from an address; throws like ``MSALAuthority/init(url:)``.
    public override init(url: URL) throws { try super.init(url: url) }

    /// Like ``init(url:)``. `validateFormat` changes nothing: only scheme and host of the address are checked.
    public init(url: URL, validateFormat: Bool) throws { try super.init(url: url) }
}

/// The authority of a federation service. It has no effect here; see ``MSALAuthority``.
public final class MSALADFSAuthority: MSALAuthority, @unchecked Sendable {}

/// The cloud of an authority.
public enum MSALAzureCloudInstance: Int, Sendable {
    /// The public cloud.
    case publicCloudInstance = 0
    /// China.
    case chinaCloudInstance
    /// Germany (“Black Forest”).
    case germanyCloudInstance
    /// The government of the United States.
    case usGovernmentCloudInstance
    /// France (“Bleu”).
    case franceCloudInstance
    /// Germany (“Delos”).
    case delosCloudInstance
    /// The government of Singapore.
    case govSGCloudInstance

    fileprivate var host: String {
        switch self {
        case .publicCloudInstance: "login.microsoftonline.com"
        case .chinaCloudInstance: "login.chinacloudapi.cn"
        case .germanyCloudInstance: "login.microsoftonline.de"
        case .usGovernmentCloudInstance: "login.microsoftonline.us"
        case .franceCloudInstance: "login.sovcloud-identity.fr"
        case .delosCloudInstance: "login.sovcloud-identity.de"
        case .govSGCloudInstance: "login.sovcloud-identity.sg"
        }
    }
}

/// The accounts that may sign in with an authority.
public enum MSALAudienceType: Int, Sendable {
    /// Organisations and personal accounts.
    case azureADAndPersonalMicrosoftAccountAudience = 0
    /// Any organisation.
    case azureADMultipleOrgsAudience
    /// One organisation, which the authority names.
    case azureADMyOrgOnlyAudience
    /// Personal accounts.
    case personalMicrosoftAccountAudience
}
