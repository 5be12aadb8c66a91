import DBus
import Identity
import SharedDevice
import Testing

@testable import SharedDeviceBroker

@Suite("Scopes that a sign-in requests from the provider")
struct ProviderScopeTests {
    private let device = VirtualDevice()

    init() throws { try device.useOrganisation() }

    private func begin(_ scopes: Set<String>) -> UInt64 {
        var wish = Request.PromptWish()
        wish.scopes = scopes
        return device.send(device.prompt, .beginSignIn(wish))
    }

    @Test("the prompt's scopes reach the provider, except scopes that no manifest has")
    func asked() {
        _ = begin(["orders", "mail"])
        #expect(device.provider.starts.last?.scopes == ["orders"])
        _ = begin([])
        #expect(device.provider.starts.last?.scopes == [])
    }

    @Test("refused scopes are blamed on the prompt if it named any, else on configuration", arguments: [true, false])
    func refused(atOnce: Bool) throws {
        let error = IdentityError(.invalidScope, "refuses the scopes")
        func refusal(_ scopes: Set<String>) throws -> Refusal? {
            device.provider.error = atOnce ? error : nil
            device.provider.polled = .failure(error)
            let begun = begin(scopes)
            if atOnce { return device.refusal(begun) }
            let name = try #require(try device.answer(begun)["request"]?.stringValue)
            return device.refusal(device.send(device.prompt, .awaitSignIn(name: name, patience: .zero)))
        }
        #expect(try refusal(["orders"]) == Refusal(.scopesDeclined, error.description))
        #expect(try refusal([]) == Refusal(.providerMisconfigured, error.description))
        #expect(device.state.prompts.isEmpty)
    }
}
