public import Foundation

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
        self.accessToken = accessToken
        self.deviceInformation = deviceInformation
        self.expiresOn = expiresOn
        self.scopes = scopes
        self.authority = authority
    }
}

/// The completion block of
/// ``MSALPublicClientApplication/getDeviceTokenForSharedDevice(withResource:scopes:completionBlock:)``.
public typealias MSALDeviceTokenResultCompletionBlock = (_ result: MSALDeviceTokenResult?, (any Error)?) -> Void

extension MSALPublicClientApplication {
    /// Always fails. The error's code is ``MSALError/workplaceJoinRequired``, because the device is not registered with
    /// a token service and so has no token. The block runs on a queue of the system's choice.
    ///
    /// Two checks come first. Their internal code is ``MSALInternalError/internalBrokerNotAvailable`` if this app does
    /// not use the broker, and ``MSALInternalError/internalErrorInvalidParameter`` if the resource is empty.
    public func getDeviceTokenForSharedDevice(
        withResource resource: String,
        scopes: [String]?,
        completionBlock: @escaping MSALDeviceTokenResultCompletionBlock
    ) {
        let completion = Completion<RequestFailure>(nil, default: .global()) { completionBlock(nil, $0.nsError) }
        completion(deviceTokenFailure(resource))
    }

    /// The async form, under the name that Swift gives MSAL's function. It always throws.
    public func deviceTokenForSharedDevice(
        withResource resource: String,
        scopes: [String]?
    ) async throws -> MSALDeviceTokenResult { throw deviceTokenFailure(resource).nsError }

    private func deviceTokenFailure(_ resource: String) -> RequestFailure {
        let attempted = "get a token of the device"
        do throws(RequestFailure) {
            try requireBroker(attempted)
        } catch {
            return error
        }
        guard !resource.isEmpty else { return .invalidParameter("could not \(attempted): a resource is required") }
        return RequestFailure(
            .surfaced(.workplaceJoinRequired),
            "could not \(attempted): the device has no registration with a token service. Ask for a token of the account instead"
        )
    }
}
