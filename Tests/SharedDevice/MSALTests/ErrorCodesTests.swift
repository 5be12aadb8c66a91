import DBus
import Foundation
@_spi(Extensions) import SharedDevice
import Testing

@testable import MSAL

@Suite("MSAL's error codes for failures of the shared device")
struct ErrorCodesTests {
    private static let expected: [(SharedDeviceError.Code, Codes)] = [
        (.brokerUnavailable, .internal(.internalBrokerNotAvailable)),
        (.notSharedDevice, .internal(.internalBrokerNotAvailable)),
        (.noCurrentAccount, .internal(.internalErrorAccountRequired)),
        (.currentAccountMismatch, .internal(.internalErrorMismatchedUser)),
        (.accountAlreadySignedIn, .internal(.internalErrorMismatchedUser)),
        (.authenticationFailed, .internal(.internalErrorAuthorizationFailed)),
        (.tooManyAttempts, .internal(.internalErrorAuthorizationFailed)),
        (.tenantMismatch, .internal(.internalErrorAuthorizationFailed)),
        (.userNotAllowed, .internal(.internalErrorAuthorizationFailed)),
        (.cleanupPending, .internal(.internalErrorAuthorizationFailed)),
        (.cleanupRequired, .internal(.internalErrorAmbiguousAccount)),
        (.userCanceled, Codes(.userCanceled)),
        (.deviceNotJoined, Codes(.workplaceJoinRequired)),
        (.invalidRequest, .internal(.internalErrorInvalidParameter)),
        (.appNotEligible, .internal(.internalErrorUnauthorizedClient)),
        (.notPermitted, .internal(.internalErrorUnauthorizedClient)),
        (.brokerFailed, .internal(.internalErrorBrokerUnknown)),
        (.recordUnusable, .internal(.internalErrorUnexpected)),
        (.interactionRequired, Codes(.interactionRequired)),
        (.providerUnavailable, Codes(.serverError)),
        (.providerMisconfigured, Codes(.serverError)),
        (.loginExpired, .internal(.internalErrorAuthorizationFailed)),
        (.scopesDeclined, Codes(.serverDeclinedScopes)),
    ]

    @Test("each code has its pair, also in silent requests, and keeps the message")
    func mapped() throws {
        #expect(Set(Self.expected.map(\.0)) == Set(SharedDeviceError.Code.all))
        #expect(Set(ErrorCodes.table.keys) == Set(SharedDeviceError.Code.all))
        for (code, codes) in Self.expected {
            let error = SharedDeviceError(code, attempted: "try it", message: "it did not work")
            let nsError = NSError(error)
            #expect(Codes(nsError) == codes, "\(code)")
            let (isInternal, info) = (codes.code == MSALError.internal.rawValue, nsError.userInfo)
            #expect((info[MSALInternalErrorCodeKey] != nil) == isInternal, "\(code)")
            #expect(info[MSALErrorDescriptionKey] as? String == "\(error)", "\(code)")
            #expect(info[NSUnderlyingErrorKey] as? SharedDeviceError == error, "\(code)")
            #expect(nsError.localizedDescription == "\(error)", "\(code)")
            let needsPerson = code == .noCurrentAccount || code == .authenticationFailed
            let silent: ErrorCodes = needsPerson ? .surfaced(.interactionRequired) : ErrorCodes(code)
            #expect(ErrorCodes(code, in: .silentToken) == silent, "\(code)")
        }
    }

    @Test("declined and granted scopes are lists under MSAL's keys")
    func declinedScopes() throws {
        let name = BrokerProtocol.errorPrefix + "declined_scope_error"
        func information(_ details: [String: DBusValue]) -> [String: Any] {
            let answer = DBusError(.refused, name: name, message: "no", attempted: "ask", details: details)
            let error = SharedDeviceError(answer, attempted: "get a token")
            #expect(error.code == .scopesDeclined)
            return NSError(error, in: .silentToken).userInfo
        }
        let declined = information([
            "declinedScopes": .array([.string("orders")], of: "s"),
            "grantedScopes": .array([.string("openid")], of: "s"),
        ])
        #expect(declined[MSALDeclinedScopesKey] as? [String] == ["orders"])
        #expect(declined[MSALGrantedScopesKey] as? [String] == ["openid"])
        // The provider may grant none of the requested scopes, and an older broker sends no lists.
        let nothing = information([
            "declinedScopes": .array([.string("orders")], of: "s"), "grantedScopes": .array([], of: "s"),
        ])
        #expect(nothing[MSALGrantedScopesKey] as? [String] == [])
        for details in [[:], ["declinedScopes": .string("orders")]] as [[String: DBusValue]] {
            let userInfo = information(details)
            #expect(userInfo[MSALDeclinedScopesKey] == nil && userInfo[MSALGrantedScopesKey] == nil)
        }
    }

    @Test("the numbers are MSAL's")
    func numbers() {
        #expect(MSALErrorDomain == "MSALErrorDomain")
        #expect(MSALError.allCases.map(\.rawValue) == Array(-50008 ... -50000).reversed() + [-50142])
        #expect([MSALError.interactionRequired, .userCanceled].map(\.rawValue) == [-50002, -50005])
        let internals: [MSALInternalError] = [
            .internalErrorInvalidParameter, .internalErrorMismatchedUser, .internalErrorAmbiguousAccount,
            .internalErrorInteractiveSessionAlreadyRunning, .internalBrokerNotAvailable,
        ]
        #expect(internals.map(\.rawValue) == [-42000, -42101, -42102, -42402, -42714])
        #expect([MSALDeviceMode.default, .shared].map(\.rawValue) == [0, 1])
        #expect(MSALPromptType.default == .promptIfNecessary)
    }
}
