public import Foundation

/// The address of a token service.
///
/// It decides nothing here: the broker knows the users of the device, whichever authority the app names. A ported app keeps its own
/// authority and finds it again in ``MSALResult/authority``.
public class MSALAuthority: CustomStringConvertible, @unchecked Sendable {
    // Unchecked because the class has subclasses. They add no property, and `url` never changes.

    /// The address.
    public let url: URL

    /// Makes an authority of an address.
    ///
    /// - Throws: ``MSALInternalError/internalErrorInvalidParameter`` unless `url` is an `https` address with a host.
    public init(url: URL) throws {
        guard url.scheme?.lowercased() == "https", url.host?.isEmpty == false else {
            throw RequestFailure.invalidParameter("could not use the authority “\(url)”: it is no https address")
                .nsError
        }
        self.url = url
    }

    fileprivate init(known url: URL) { self.url = url }

    /// The address as text. MSAL's own text is another one; no program should read it.
    public var description: String { url.absoluteString }

    /// The host, which accounts and tenant profiles call their environment.
    var environment: String { url.host ?? "" }

    /// The authority of an app that names none: any organisation.
    // Unwrapped because it is a constant, and a URL.
    static let common = MSALAuthority(known: URL(string: "https://login.microsoftonline.com/common")!)
}

/// The authority of an organisation. It decides nothing here; see ``MSALAuthority``.
public final class MSALAADAuthority: MSALAuthority, @unchecked Sendable {
    /// Makes an authority of an address; throws as ``MSALAuthority/init(url:)``.
    public override init(url: URL) throws { try super.init(url: url) }

    /// Makes an authority of the address's host and a tenant; `nil` leaves the address as it is.
    ///
    /// - Throws: ``MSALInternalError/internalErrorInvalidParameter`` unless host and tenant make an `https` address.
    public init(url: URL, rawTenant: String?) throws {
        var parts = URLComponents(url: url, resolvingAgainstBaseURL: true)
        if let rawTenant { parts?.path = "/\(rawTenant)" }
        try super.init(url: parts?.url ?? url)
    }

    /// Makes an authority of a national cloud and an audience.
    ///
    /// - Throws: ``MSALInternalError/internalErrorInvalidParameter`` for an audience of one organisation without `rawTenant`.
    public convenience init(
        cloudInstance: MSALAzureCloudInstance,
        audienceType: MSALAudienceType,
        rawTenant: String?
    ) throws {
        let tenant: String
        switch audienceType {
        case .azureADAndPersonalMicrosoftAccountAudience: tenant = "common"
        case .azureADMultipleOrgsAudience: tenant = "organizations"
        case .personalMicrosoftAccountAudience: tenant = "consumers"
        case .azureADMyOrgOnlyAudience:
            guard let rawTenant else {
                throw RequestFailure.invalidParameter("could not make the authority: this audience needs a tenant")
                    .nsError
            }
            tenant = rawTenant
        }
        // Unwrapped because it is one of four constants, and a URL.
        try self.init(url: URL(string: "https://\(cloudInstance.host)")!, rawTenant: tenant)
    }
}

/// The authority of a directory of customers. It decides nothing here; see ``MSALAuthority``.
public final class MSALB2CAuthority: MSALAuthority, @unchecked Sendable {}

/// The authority of an external tenant. It decides nothing here; see ``MSALAuthority``.
public final class MSALCIAMAuthority: MSALAuthority, @unchecked Sendable {
    /// Makes an authority of an address; throws as ``MSALAuthority/init(url:)``.
    public override init(url: URL) throws { try super.init(url: url) }

    /// The same. `validateFormat` changes nothing: the address is never looked at.
    public init(url: URL, validateFormat: Bool) throws { try super.init(url: url) }
}

/// The authority of a federation service. It decides nothing here; see ``MSALAuthority``.
public final class MSALADFSAuthority: MSALAuthority, @unchecked Sendable {}

/// The cloud of an authority.
public enum MSALAzureCloudInstance: UInt, Sendable {
    /// Everywhere but in the national clouds.
    case publicCloudInstance = 0
    /// China.
    case chinaCloudInstance
    /// Germany.
    case germanyCloudInstance
    /// The government of the United States.
    case usGovernmentCloudInstance

    fileprivate var host: String {
        switch self {
        case .publicCloudInstance: "login.microsoftonline.com"
        case .chinaCloudInstance: "login.partner.microsoftonline.cn"
        case .germanyCloudInstance: "login.microsoftonline.de"
        case .usGovernmentCloudInstance: "login.microsoftonline.us"
        }
    }
}

/// Who may sign in with an authority.
public enum MSALAudienceType: UInt, Sendable {
    /// Organisations and private persons.
    case azureADAndPersonalMicrosoftAccountAudience = 0
    /// Any organisation.
    case azureADMultipleOrgsAudience
    /// One organisation, which the authority names.
    case azureADMyOrgOnlyAudience
    /// Private persons.
    case personalMicrosoftAccountAudience
}
