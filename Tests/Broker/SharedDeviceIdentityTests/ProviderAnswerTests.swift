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

    @Test(
        "the same in place of a sign-in's tokens sign nobody in",
        arguments: ["exchange-html", "exchange-redirect", "exchange-large", "exchange-cut"]
    )
    func exchange(fault: String) async throws {
        let error = await #expect(throws: IdentityError.self) { _ = try await self.signedIn(fault) }
        #expect([.providerUnavailable, .providerMisconfigured].contains(error?.code), "\(String(describing: error))")
    }

    @Test("an answer after 9 s counts, on a device that is not so busy that it took longer")
    func inTime() async throws {
        let (device, record) = try await signedIn("refresh-after-9-s")
        let start = ContinuousClock.now
        switch await device.provider.renew(record, scopes: [], mayBeUsed: false) {
        case .renewed:
            #expect(ContinuousClock.now - start >= .seconds(9))
        case .unavailable(_, mayBeUsed: true), .reauthenticationNeeded:
            // The limit of 10 s was reached before the answer was read.
            #expect(ContinuousClock.now - start >= .seconds(10))
        default:
            Issue.record("a slow answer ended the session")
        }
    }

    @Test(
        "an answer after 20 s, and one that is cut off, come too late; that the token may be used up is not forgotten, and ends no session",
        arguments: ["refresh-after-20-s", "refresh-cut"]
    )
    func tooLate(fault: String) async throws {
        let (device, record) = try await signedIn(fault)
        guard
            case .unavailable(let error, mayBeUsed: true) = await device.provider.renew(
                record,
                scopes: [],
                mayBeUsed: false
            )
        else {
            Issue.record("it was taken, or it is not known that the token may be used up")
            return
        }
        #expect(error.code == .providerUnavailable)
    }
}
