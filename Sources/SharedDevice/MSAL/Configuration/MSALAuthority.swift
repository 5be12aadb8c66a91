public import Foundation

/// The address of a token service. It names nothing here: the broker has the users of the device, whatever the app's authority.
/// A ported app keeps its own, and finds it again in ``MSALResult/authority``.
public class MSALAuthority: @unchecked Sendable {
    // Unchecked because it has subclasses: they add nothing, and this is all there is.
    /// The address.
    public let url: URL

    /// - Throws: ``MSALInternalError/internalErrorInvalidParameter`` for what is no `https` address of a host.
    public init(url: URL) throws {
        guard url.scheme?.lowercased() == "https", url.host?.isEmpty == false else {
            throw RequestFailure.invalidParameter("could not use the authority “\(url)”: it is no https address")
                .nsError
        }
        self.url = url
    }

    fileprivate init(known url: URL) { self.url = url }

    /// What stands for any organisation.
    // Unwrapped because it is a constant, and a URL.
    static let common = MSALAuthority(known: URL(string: "https://login.microsoftonline.com/common")!)
}

/// The authority of an organisation.
public final class MSALAADAuthority: MSALAuthority, @unchecked Sendable {}
