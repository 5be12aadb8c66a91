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
            case "$SHARED_DEVICE_LOGIN_HINT $*" in
            *--login-hint*) code=broker_failed ;;
            nobody\ *) code=interaction_required ;;
            cancels\ *) code=user_canceled ;;
            window\ *--page*) code=login_expired ;;
            down\ *) code=provider_unavailable ;;
            *) code=broker_failed ;;
            esac
            echo "{\"code\":\"$code\",\"message\":\"as the test wants\"}"
            exit 1
            """#
        setenv("SHARED_DEVICE_SIGN_IN", try directory.writeScript("prompt", script), 1)
        return directory
    }

    private func codes(
        _ device: DeviceOnPrivateBus,
        _ hint: String,
        _ parameters: MSALWebviewParameters = MSALWebviewParameters()
    ) async throws -> Codes? {
        _ = try Self.program.get()
        let app = try device.msalApplication()
        let request = MSALInteractiveTokenParameters(scopes: ["a"], webviewParameters: parameters)
        request.loginHint = hint
        return await SharedDeviceTests.codes { _ = try await app.acquireToken(with: request) }
    }

    @Test("the prompt's errors have MSAL's codes; an absent prompt causes no retry")
    func outcomes() async throws {
        let device = try await DeviceOnPrivateBus()
        #expect(try await codes(device, "cancels") == Codes(.userCanceled))
        #expect(try await codes(device, "nobody") == .internal(.internalErrorNoViewController))
        #expect(try await codes(device, "down") == Codes(.serverError))
    }

    @Test("a view controller without a prompt makes the sign-in open a window")
    func window() async throws {
        final class ViewController {}
        let device = try await DeviceOnPrivateBus()
        let controller = ViewController()
        let parameters = MSALWebviewParameters(authPresentationViewController: controller)
        #expect(try await codes(device, "window", parameters) == .internal(.internalErrorAuthorizationFailed))
        #expect(try await codes(device, "window") == .internal(.internalErrorBrokerUnknown))
    }
}
