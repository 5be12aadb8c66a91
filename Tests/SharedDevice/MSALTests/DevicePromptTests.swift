import Foundation
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
import Testing

@testable import MSAL

@Suite("Sign-in at the device's own prompt")
struct DevicePromptTests {
    /// A prompt whose behaviour is chosen by the login hint. The variable is set once, because other tests read
    /// variables concurrently.
    private static let program = Result {
        let directory = try TemporaryDirectory("prompt")
        let script = #"""
            case "$SHARED_DEVICE_LOGIN_HINT $* $SHARED_DEVICE_CLAIMS" in
            *--login-hint*) code=broker_failed ;;
            nobody\ *) code=interaction_required ;;
            cancels\ *) code=user_canceled ;;
            window\ *--page*) code=login_expired ;;
            down\ *) code=provider_unavailable ;;
            ada\ *--again*acrs*) code=login_expired ;;
            ada\ *--again*) code=user_canceled ;;
            *) code=broker_failed ;;
            esac
            echo "{\"code\":\"$code\",\"message\":\"as the test wants\"}"
            exit 1
            """#
        setenv("SHARED_DEVICE_SIGN_IN", try directory.writeScript("prompt", script), 1)
        return directory
    }

    @Test("the prompt opens a window if asked, has MSAL's codes, and asks again on demand")
    func outcomes() async throws {
        final class ViewController {}
        _ = try Self.program.get()
        let device = try await DeviceOnPrivateBus()
        let app = try device.msalApplication()
        let controller = ViewController()
        for (hint, hasController, expected) in [
            ("cancels", false, Codes(.userCanceled)), ("nobody", false, .internal(.internalErrorNoViewController)),
            ("down", false, Codes(.serverError)), ("window", true, .internal(.internalErrorAuthorizationFailed)),
            ("window", false, .internal(.internalErrorBrokerUnknown)),
        ] as [(String, Bool, Codes)] {
            let window = MSALWebviewParameters(authPresentationViewController: controller)
            let parameters = hasController ? window : MSALWebviewParameters()
            let request = MSALInteractiveTokenParameters(scopes: ["a"], webviewParameters: parameters)
            request.loginHint = hint
            #expect(await codes { _ = try await app.acquireToken(with: request) } == expected, "\(hint)")
        }
        // The signed-in person is asked again for claims and with the prompt type “login”.
        _ = try await app.signIn("ada")
        let request = MSALInteractiveTokenParameters(scopes: ["a"], webviewParameters: .unasked)
        request.promptType = .login
        #expect(await codes { _ = try await app.acquireToken(with: request) } == Codes(.userCanceled))
        request.claimsRequest = try MSALClaimsRequest(jsonString: #"{"access_token":{"acrs":{"value":"c1"}}}"#)
        let expired = Codes.internal(.internalErrorAuthorizationFailed)
        #expect(await codes { _ = try await app.acquireToken(with: request) } == expired)
        // Without a demand it is single sign-on.
        (request.promptType, request.claimsRequest) = (.default, nil)
        #expect(try await app.acquireToken(with: request).account.username == "ada")
    }
}
