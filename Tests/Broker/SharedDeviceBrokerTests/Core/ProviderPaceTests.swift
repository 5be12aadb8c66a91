import Foundation
@_spi(Extensions) import SharedDevice
import Testing

@testable import SharedDeviceBroker

@Suite("Rate limit of an app's provider requests")
struct ProviderPaceTests {
    private let device = VirtualDevice()

    init() throws {
        try device.useOrganisation()
        try device.signInAtProvider()
    }

    @Test("an app that keeps refreshing gets the cached token, and after a pause a new one")
    func refreshes() throws {
        let written = device.batches.count
        var tokens: Set<String> = []
        for _ in 1...600 {
            tokens.insert(try device.token(refresh: true))
            device.advance(by: .milliseconds(100))
        }
        // The limit allows 16 at first, and one more each 15 s.
        #expect((17...20).contains(tokens.count) && device.provider.renewals.count == tokens.count)
        #expect(device.batches.count - written < 100)
        let other = device.app("org.example.till", user: 1001)
        #expect(try !tokens.contains(device.token(for: "ada", ["orders"], refresh: true, by: other)))
    }

    @Test("repeated requests for refused scopes are answered from the cache")
    func refused() throws {
        device.provider.refusedScopes = ["orders"]
        for _ in 1...100 { device.expectRefused(device.requestToken(), .scopesNotGranted) }
        device.expectRenewals(16)
        try device.signOut(by: device.till)
        try device.signInAtProvider("grace")
        device.provider.refusedScopes = []
        try device.expectToken(for: "grace", ["orders"], by: device.till)
    }

    @Test("requests that are not sent because the disk is full do not count")
    func fullDisk() throws {
        device.advance(by: .seconds(1))
        device.diskMode = .fails("the disk is full")
        for _ in 1...100 { device.requestToken() }
        device.expectRenewals(0)
        device.diskMode = .commits
        device.advance(by: .seconds(2))
        _ = try device.token()
    }

    @Test("an app that varies its scopes is told how long to wait")
    func combinations() throws {
        let names = (0..<8).map { "orders.\($0)" }
        device.use(.app("org.example.till", scopes: Set(names)))
        var last: Refusal?
        for mask in 1..<256 {
            let scopes = Set(names.enumerated().filter { mask & (1 << $0.offset) != 0 }.map(\.element))
            last = device.refusalOfToken(scopes)
        }
        device.expectRenewals(16)
        #expect(last?.code == .tooManyAttempts && last?.description.contains("try again in 15 s") == true)
    }

    @Test("requests that wait for the same token count once")
    func together() throws {
        device.holdsProvider = true
        let numbers = (1...40).map { _ in device.requestToken(refresh: true) }
        device.letProviderAnswer()
        #expect(try Set(numbers.map { try WireToken(device.answer($0)["token"]).value }).count == 1)
        device.expectRenewals(1)
        for _ in 1...20 { _ = try device.token(refresh: true) }
        device.expectRenewals(16)
    }

    @Test("an idle app's limit is discarded")
    func memory() {
        var pace = QuestionPace()
        func asker(_ user: UInt32) -> QuestionPace.Asker {
            QuestionPace.Asker(participant: Participant(app: "till", user: user), generation: 1)
        }
        for user: UInt32 in 0..<100 { pace.take(asker(user), at: .zero) }
        #expect(pace.count == 100)
        pace.take(asker(100), at: .seconds(15))
        #expect(pace.count == 1)
    }
}
