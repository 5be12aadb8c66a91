import Foundation
import Testing

@testable import MSAL

/// What exists so that code for iOS compiles. `PortedSharedDeviceApp` has it in the forms that apps use.
@Suite("Names that change little or nothing")
struct SurfaceTests {
    private func url(_ text: String) throws -> URL { try #require(URL(string: text)) }

    @Test("each kind of authority keeps its address and takes no other than https")
    func authorities() throws {
        let address = try url("https://login.example.com/contoso")
        let authorities = [
            try MSALAuthority(url: address), try MSALAADAuthority(url: address), try MSALB2CAuthority(url: address),
            try MSALCIAMAuthority(url: address), try MSALCIAMAuthority(url: address, validateFormat: false),
            try MSALADFSAuthority(url: address),
        ]
        for authority in authorities {
            #expect(authority.url == address && authority.description == address.absoluteString)
            #expect(authority.environment == "login.example.com")
        }
        let plain = try url("http://login.example.com")
        #expect(throws: NSError.self) { try MSALB2CAuthority(url: plain) }
        #expect(throws: NSError.self) { try MSALCIAMAuthority(url: plain, validateFormat: false) }
    }

    @Test("an authority of a tenant or of a national cloud has that address")
    func tenants() throws {
        let common = try url("https://login.example.com/common")
        #expect(try MSALAADAuthority(url: common, rawTenant: nil).url == common)
        #expect(
            try MSALAADAuthority(url: common, rawTenant: "contoso").description == "https://login.example.com/contoso"
        )
        let bare = try url("https://login.example.com")
        #expect(try MSALAADAuthority(url: bare, rawTenant: "a b").description == "https://login.example.com/a%20b")
        let government = try MSALAADAuthority(
            cloudInstance: .usGovernmentCloudInstance,
            audienceType: .azureADMultipleOrgsAudience,
            rawTenant: nil
        )
        #expect(government.description == "https://login.microsoftonline.us/organizations")
        #expect(throws: NSError.self) {
            try MSALAADAuthority(
                cloudInstance: .publicCloudInstance,
                audienceType: .azureADMyOrgOnlyAudience,
                rawTenant: nil
            )
        }
    }

    @Test("an application keeps a copy of all settings, and gives out copies")
    func configuration() throws {
        let configuration = MSALPublicClientApplicationConfig(clientId: "org.example.app")
        configuration.knownAuthorities = [.common]
        configuration.cacheConfig.keychainSharingGroup = "group"
        configuration.extendedLifetimeEnabled = true
        configuration.clientApplicationCapabilities = ["protapp"]
        configuration.tokenExpirationBuffer = 60
        configuration.multipleCloudsSupported = true
        let application = try MSALPublicClientApplication(configuration: configuration)
        configuration.knownAuthorities = []
        configuration.cacheConfig.keychainSharingGroup = "another"
        application.configuration.cacheConfig.keychainSharingGroup = "yet another"
        let copy = application.configuration
        #expect(copy.knownAuthorities.map(\.description) == [MSALAuthority.common.description])
        #expect(copy.cacheConfig.keychainSharingGroup == "group" && copy.extendedLifetimeEnabled)
        #expect(copy.clientApplicationCapabilities == ["protapp"] && copy.tokenExpirationBuffer == 60)
        #expect(copy.multipleCloudsSupported)
        #expect(MSALCacheConfig.defaultKeychainSharingGroup() == "com.microsoft.adalcache")
    }

    /// A view controller that asks.
    private final class Screen: MSALCredentialsPrompting {
        nonisolated init() {}

        func credentials(forLoginHint loginHint: String?) -> MSALCredentials? {
            MSALCredentials(username: loginHint ?? "nobody", password: "secret")
        }
    }

    @Test("a view controller that can ask is asked on the main actor, and is not kept alive")
    func viewController() async throws {
        var screen: Screen? = Screen()
        let parameters = MSALWebviewParameters(authPresentationViewController: try #require(screen))
        let prompt = try #require(parameters.prompt)
        #expect(try await prompt("ada")?.username == "ada")
        let old = MSALWebviewParameters(parentViewController: try #require(screen))
        #expect(try await old.prompt?(nil)?.username == "nobody")
        screen = nil
        let error = await #expect(throws: RequestFailure.self) { _ = try await prompt("ada") }
        #expect(error?.codes == .internal(.internalErrorNoViewController))
    }

    @Test("web views are described in vain, and URLs are left to the app")
    func webViews() throws {
        let parameters = MSALWebviewParameters(prompt: { _ in nil })
        #expect(parameters.webviewType == .default)
        parameters.webviewType = .authenticationSession
        parameters.prefersEphemeralWebBrowserSession = true
        parameters.customWebview = Screen()
        #expect(parameters.webviewType == .authenticationSession && parameters.prefersEphemeralWebBrowserSession)
        #expect(parameters.customWebview == nil)
        let interactive = MSALInteractiveTokenParameters(scopes: ["a"], webviewParameters: parameters)
        #expect(interactive.webviewType == .authenticationSession)
        let response = try url("msauth.org.example.app://auth?code=1")
        #expect(!MSALPublicClientApplication.handleMSALResponse(response, sourceApplication: nil))
        #expect(!MSALPublicClientApplication.handleMSALResponse(response))
        #expect(!MSALPublicClientApplication.cancelCurrentWebAuthSession())
    }
}
