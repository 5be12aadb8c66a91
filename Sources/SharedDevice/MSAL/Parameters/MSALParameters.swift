public import Dispatch

/// Parameters of a request that needs none, but for where its completion block runs.
public class MSALParameters {
    /// Where the completion block is called; `nil` for the request's own default: the main queue for
    /// ``MSALPublicClientApplication/acquireToken(with:completionBlock:)`` and
    /// ``MSALPublicClientApplication/signout(with:signoutParameters:completionBlock:)``, a queue of the system's choice for all others.
    /// The async forms do not look at it.
    public var completionBlockQueue: DispatchQueue?

    /// Parameters that change nothing.
    public init() {}
}
