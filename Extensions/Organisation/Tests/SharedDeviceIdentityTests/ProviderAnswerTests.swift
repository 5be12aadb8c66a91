import FoundationEssentials
import Identity
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import TestProviders
import Testing

@Suite("Responses of a provider to the process, with the real limits")
struct ProviderAnswerTests {
    private func signedIn(_ fault: String) async throws -> (IdentityDevice, ProviderRecord) {
        let device = try await IdentityDevice(fault: fault)
        let test = try await FaultyProvider.shared.value.client(fault)
        return (device, try await device.signIn(test.browse).record)
    }

    @Test(
        "a page, a redirect or 1 GiB for a token neither ends a session nor fills memory",
        arguments: ["refresh-html", "refresh-redirect", "refresh-large"]
    )
    func refresh(fault: String) async throws {
        let (device, record) = try await signedIn(fault)
        guard case .unavailable(let error, _) = await device.provider.renew(record, scopes: [], mayBeUsed: false) else {
            Issue.record("\(fault) was taken for an answer")
            return
        }
        #expect(!error.description.contains("Maintenance"), "\(error)")
        #expect(try device.process.memory().peak < 128 << 20)
        // The process still works.
        _ = try await device.provider.begin(SignInStart(.browser, redirect: IdentityDevice.redirect))
    }

    @Test("the provider's Retry-After reaches the broker")
    func busy() async throws {
        let (device, record) = try await signedIn("refresh-busy")
        let outcome = await device.provider.renew(record, scopes: [], mayBeUsed: false)
        guard case .unavailable(let error, mayBeUsed: false) = outcome else {
            Issue.record("429 was taken for an answer")
            return
        }
        #expect(error.code == .providerUnavailable && error.retryAfter == .seconds(120))
    }
}
