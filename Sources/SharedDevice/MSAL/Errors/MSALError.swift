/// The codes of errors in ``MSALErrorDomain`` that an app handles.
public enum MSALError: Int, Sendable, CaseIterable {
    /// Nothing that an app can settle by itself; ``MSALInternalErrorCodeKey`` has the ``MSALInternalError`` that says more.
    case `internal` = -50000
    /// The device has to be joined to its organisation first.
    case workplaceJoinRequired = -50001
    /// A person has to sign in: call ``MSALPublicClientApplication/acquireToken(with:completionBlock:)``.
    case interactionRequired = -50002
    /// Some scopes were not granted. The broker never answers so.
    case serverDeclinedScopes = -50003
    /// The app has to meet a protection policy first. The broker never answers so.
    case serverProtectionPoliciesRequired = -50004
    /// The person at the prompt gave up.
    case userCanceled = -50005
    /// The token service failed. The broker never answers so.
    case serverError = -50006
    /// The device's key is not strong enough. The broker never answers so.
    case insufficientDeviceStrength = -50007
    /// The device was enrolled meanwhile, and the request is to be repeated. The broker never answers so.
    case mdmEnrollmentCompletedNeedsRetry = -50008
    /// The password has to be set anew. The broker never answers so.
    case serverInvalidRequestResetPasswordRequired = -50142
}
