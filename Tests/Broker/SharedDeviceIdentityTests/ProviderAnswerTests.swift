import FoundationEssentials
import Identity
import IdentityService
import NotifyCenterTestKit
import SharedDevice
import TestProviders
import Testing

@Suite("What a provider may answer to the process, at the limits that are in force")
struct ProviderAnswerTests {
    /// A device at which Ada is signed in, and her record.
    private func signedIn(_ fault: String) async throws -> (IdentityDevice, ProviderRecord) {
        let device = try await IdentityDevice(fault: fault)
        let test = try await FaultyProvider.shared.value.client(fault)
        return (device, try await device.signIn(test.browse).record)
    }

    @Test(
        "a page, a redirect and 1 GiB in place of new tokens end no session, and fill no memory",
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
        // The process goes on.
        _ = try await device.provider.begin(SignInStart(.browser, redirect: IdentityDevice.redirect))
    }

    @Test("a provider that wants to be left alone says for how long, and the broker hears it")
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
