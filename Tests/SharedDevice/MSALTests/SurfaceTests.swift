import Foundation
import SharedDevice
import Testing

@testable import MSAL

/// The API that exists so that code for iOS compiles. `ported-shared-device-app` uses it the way apps do.
@Suite("Names with little or no effect")
struct SurfaceTests {
    private func url(_ text: String) throws -> URL { try #require(URL(string: text)) }

    @Test("each kind of authority has the https address of its tenant and cloud")
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
        let (common, bare) = (try url("https://login.example.com/common"), try url("https://login.example.com"))
        let several = MSALAudienceType.azureADMultipleOrgsAudience
        let french = "login.sovcloud-identity.fr"
        let tenants = [
            try MSALAADAuthority(url: common, rawTenant: nil),
            try MSALAADAuthority(url: common, rawTenant: "contoso"),
            try MSALAADAuthority(url: bare, rawTenant: "a b"),
            try MSALAADAuthority(cloudInstance: .usGovernmentCloudInstance, audienceType: several, rawTenant: nil),
            try MSALAADAuthority(environment: french, audienceType: several, rawTenant: nil),
        ]
        let addresses = [
            "https://login.example.com/common", "https://login.example.com/contoso", "https://login.example.com/a%20b",
            "https://login.microsoftonline.us/organizations", "https://\(french)/organizations",
        ]
        #expect(tenants.map(\.description) == addresses && tenants[0].url == common)
        #expect(throws: NSError.self) {
            try MSALAADAuthority(environment: "a/b", audienceType: several, rawTenant: nil)
        }
        let own = MSALAudienceType.azureADMyOrgOnlyAudience
        #expect(throws: NSError.self) {
            try MSALAADAuthority(cloudInstance: .publicCloudInstance, audienceType: own, rawTenant: nil)
        }
        // Each cloud has Microsoft's number and host.
        let hosts = [
            "microsoftonline.com", "chinacloudapi.cn", "microsoftonline.de", "microsoftonline.us",
            "sovcloud-identity.fr", "sovcloud-identity.de", "sovcloud-identity.sg",
        ]
        let audience = try #require(MSALAudienceType(rawValue: 3))
        for (number, host) in hosts.enumerated() {
            let cloud = try #require(MSALAzureCloudInstance(rawValue: number))
            let authority = try MSALAADAuthority(cloudInstance: cloud, audienceType: audience, rawTenant: nil)
            #expect(authority.description == "https://login.\(host)/consumers")
        }
    }

    @Test("an application copies all settings, and needs a valid identity")
    func configuration() async throws {
        let configuration = MSALPublicClientApplicationConfig(clientId: "org.example.app")
        configuration.knownAuthorities = [.common]
        configuration.cacheConfig.keychainSharingGroup = "group"
        configuration.extendedLifetimeEnabled = true
        configuration.clientApplicationCapabilities = ["protapp"]
        configuration.tokenExpirationBuffer = 60
        configuration.multipleCloudsSupported = true
        configuration.sliceConfig = MSALSliceConfig(slice: "testslice", dc: nil)
        let application = try MSALPublicClientApplication(configuration: configuration)
        configuration.knownAuthorities = []
        configuration.sliceConfig?.slice = "another"
        configuration.sliceConfig = nil
        configuration.cacheConfig.keychainSharingGroup = "another"
        application.configuration.cacheConfig.keychainSharingGroup = "yet another"
        let copy = application.configuration
        #expect(copy.knownAuthorities.map(\.description) == [MSALAuthority.common.description])
        #expect(copy.cacheConfig.keychainSharingGroup == "group" && copy.extendedLifetimeEnabled)
        #expect(copy.clientApplicationCapabilities == ["protapp"] && copy.tokenExpirationBuffer == 60)
        #expect(copy.multipleCloudsSupported)
        #expect(copy.sliceConfig?.sliceDictionary as? [String: String] == ["slice": "testslice"])
        #expect(MSALCacheConfig.defaultKeychainSharingGroup() == "com.microsoft.adalcache")
        let invalid = Codes.internal(.internalErrorInvalidParameter)
        for clientId in ["", "../../etc", ".hidden", "a/b"] {
            #expect(await codes { _ = try MSALPublicClientApplication(clientId: clientId) } == invalid, "\(clientId)")
        }
        let plain = try url("http://login.example.com")
        #expect(await codes { _ = try MSALAADAuthority(url: plain) } == invalid)
        let authority = try MSALAADAuthority(url: url("https://login.example.com/contoso"))
        let other = try MSALPublicClientApplication(clientId: "x", authority: authority, redirectUri: nil)
        #expect(other.configuration.authority === authority)
        other.configuration.clientId = "y"
        #expect(other.configuration.clientId == "x")
    }

    private final class Screen: MSALCredentialsPrompting {
        nonisolated init() {}

        func credentials(forLoginHint loginHint: String?) -> MSALCredentials? {
            MSALCredentials(username: loginHint ?? "nobody", password: "secret")
        }
    }

    @Test("a view controller is asked on the main actor and held weakly")
    func viewController() async throws {
        var screen: Screen? = Screen()
        let parameters = MSALWebviewParameters(authPresentationViewController: try #require(screen))
        let prompt = try #require(parameters.prompt)
        #expect(try await prompt("ada")?.username == "ada")
        let old = MSALWebviewParameters(parentViewController: try #require(screen))
        #expect(try await old.prompt?(nil)?.username == "nobody")
        screen = nil
        let error = await #expect(throws: NSError.self) { _ = try await prompt("ada") }
        #expect(Codes(error) == .internal(.internalErrorNoViewController))
    }

    @Test("settings have no effect, and URLs are left to the app")
    func settings() throws {
        let parameters = MSALWebviewParameters(prompt: { _ in nil })
        #expect(parameters.webviewType == .default)
        parameters.webviewType = .authenticationSession
        parameters.prefersEphemeralWebBrowserSession = true
        parameters.customWebview = Screen()
        #expect(parameters.webviewType == .authenticationSession && parameters.prefersEphemeralWebBrowserSession)
        #expect(parameters.customWebview == nil && parameters.presentationStyle == .automatic)
        parameters.presentationStyle = .fullScreen
        #expect(parameters.presentationStyle.rawValue == 0)
        let interactive = MSALInteractiveTokenParameters(scopes: ["a"], webviewParameters: parameters)
        #expect(interactive.webviewType == .authenticationSession)
        let response = try url("msauth.org.example.app://auth?code=1")
        #expect(!MSALPublicClientApplication.handleMSALResponse(response, sourceApplication: nil))
        #expect(!MSALPublicClientApplication.handleMSALResponse(response))
        #expect(!MSALPublicClientApplication.cancelCurrentWebAuthSession())
        MSALGlobalConfig.httpConfig.retryCount = 3
        MSALGlobalConfig.httpConfig.timeoutIntervalForRequest = 60
        MSALGlobalConfig.telemetryConfig.piiEnabled = true
        MSALGlobalConfig.telemetryConfig.telemetryCallback = { _ in }
        let (http, telemetry) = (MSALGlobalConfig.httpConfig, MSALGlobalConfig.telemetryConfig)
        #expect(http.retryCount == 3 && http.timeoutIntervalForRequest == 60)
        #expect(telemetry.piiEnabled && telemetry.telemetryCallback == nil)
    }

    @Test("a claims request is read, changed and written as JSON, and may be a demand")
    func claims() throws {
        let challenge =
            #"{"access_token":{"nbf":{"essential":true,"value":"1800000000"}},"id_token":{"acr":{"values":["a"]},"name":null}}"#
        let request = try MSALClaimsRequest(jsonString: challenge)
        #expect(request.jsonString() == challenge)
        let nbf = try #require(request.claimRequests(for: .accessToken).first)
        #expect(nbf.name == "nbf" && nbf.additionalInfo?.essential == true)
        #expect(nbf.additionalInfo?.jsonString() == #"{"essential":true,"value":"1800000000"}"#)
        #expect(request.claimRequests(for: .idToken).map(\.name) == ["acr", "name"])
        try request.removeClaimRequest(withName: "acr", target: .idToken)
        try request.requestClaim(MSALIndividualClaimRequest(name: "nbf"), for: .accessToken)
        #expect(request.jsonString() == #"{"access_token":{"nbf":null},"id_token":{"name":null}}"#)
        #expect(throws: NSError.self) { try request.removeClaimRequest(withName: "acr", target: .idToken) }
        #expect(throws: NSError.self) { try request.requestClaim(MSALIndividualClaimRequest(name: ""), for: .idToken) }
        for text in ["", "[]", "{", #"{"id_token":7}"#, #"{"id_token":{"acr":7}}"#] {
            #expect(throws: NSError.self) { try MSALClaimsRequest(jsonString: text) }
        }
        nbf.additionalInfo?.value = Date()
        try request.requestClaim(nbf, for: .accessToken)
        #expect(request.jsonString() == nil)
        for (text, isDemand) in [
            ("{}", false), (#"{"access_token":{"xms_cc":{"values":["cp1"]}}}"#, false),
            (#"{"access_token":{"xms_cc":{"values":["cp1"]},"acrs":null}}"#, true),
            (#"{"id_token":{"acr":null}}"#, true),
        ] { #expect(try MSALClaimsRequest(jsonString: text).isDemand == isDemand, "\(text)") }
    }

    @Test("a browser sign-out succeeds only if its page opens")
    func browser() {
        let results: [BrowserSignout] = [.notRequested, .opened, .notConfigured, .failed("no screen"), .timedOut]
        #expect(results.filter { $0.problem == nil } == [.notRequested, .opened])
    }
}
