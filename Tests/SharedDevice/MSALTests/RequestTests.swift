import Basics
import DBus
import Foundation
import NotifyCenterTestKit
import SharedDevice
import Synchronization
import Testing

@testable import MSAL

@Suite("Requests with MSAL's names and the real broker")
struct RequestTests {
    private let device: DeviceOnPrivateBus
    private let app: MSALPublicClientApplication

    init() async throws {
        device = try await DeviceOnPrivateBus()
        app = try device.msalApplication()
    }

    @Test("all apps share a sign-in without a prompt, and a sign-out ends it for all")
    func singleSignOn() async throws {
        let (one, other) = (app, try device.msalApplication("other"))
        let result = try await one.signIn("ada")
        #expect(result.account.username == "ada" && result.scopes == ["orders.read"])
        #expect(result.authorizationHeader == "Bearer \(result.accessToken)")
        #expect(try #require(result.expiresOn) > Date())
        #expect(result.account.accountClaims?["name"] as? String == "Ada")
        let id = try #require(result.account.homeAccountId)
        #expect(id.identifier == result.account.identifier)
        #expect("\(id.objectId).\(id.tenantId)" == id.identifier)
        #expect(result.tenantProfile.identifier == id.objectId && result.tenantId == id.tenantId)
        #expect(result.uniqueId == id.objectId && result.tenantProfile.claims?["name"] as? String == "Ada")
        #expect(result.account.environment == "login.microsoftonline.com")

        let interactive = MSALInteractiveTokenParameters(scopes: ["orders.read"], webviewParameters: .unasked)
        let own = try await other.acquireToken(with: interactive).accessToken
        #expect(own != result.accessToken, "each app has a separate token")
        let silent = MSALSilentTokenParameters(scopes: ["orders.read"], account: result.account)
        let correlationId = UUID()
        silent.correlationId = correlationId
        let again = try await other.acquireTokenSilent(with: silent)
        #expect(again.accessToken == own && again.correlationId == correlationId)
        silent.forceRefresh = true
        #expect(try await other.acquireTokenSilent(with: silent).accessToken != own)
        #expect(try other.allAccounts() == [result.account])

        let signedOut = try await other.signout(with: result.account, signoutParameters: MSALSignoutParameters())
        #expect(signedOut)
        #expect(try other.allAccounts() == [])
        // The app got the account with its token and never asked for it. MSAL would report no previous account.
        #expect(try await one.told() == "- ada")
        #expect(await codes { _ = try await one.acquireTokenSilent(with: silent) } == Codes(.interactionRequired))
    }

    @Test("arguments are checked before any change, and device tokens are refused")
    func argumentChecks() async throws {
        let account = try await app.signIn("ada").account
        let invalid = Codes.internal(.internalErrorInvalidParameter)
        // Only the person can meet a demand. The app's own capabilities are no demand.
        let silent = MSALSilentTokenParameters(scopes: ["orders.read"], account: account)
        silent.claimsRequest = try MSALClaimsRequest(jsonString: #"{"access_token":{"nbf":{"essential":true}}}"#)
        #expect(await codes { _ = try await app.acquireTokenSilent(with: silent) } == Codes(.interactionRequired))
        silent.claimsRequest = try MSALClaimsRequest(jsonString: #"{"access_token":{"xms_cc":{"values":["cp1"]}}}"#)
        #expect(try await app.acquireTokenSilent(with: silent).account == account)
        func deviceToken(_ resource: String) async -> Codes? {
            await codes { _ = try await app.deviceTokenForSharedDevice(withResource: resource, scopes: nil) }
        }
        #expect(await deviceToken("https://example.com") == Codes(.workplaceJoinRequired))
        #expect(await deviceToken("") == invalid)
        let error = await withCheckedContinuation { continuation in
            app.getDeviceTokenForSharedDevice(withResource: "https://example.com", scopes: nil) { result, error in
                continuation.resume(returning: result == nil ? error as NSError? : nil)
            }
        }
        #expect(error?.code == MSALError.workplaceJoinRequired.rawValue)
        let plain = MSALSignoutParameters(webviewParameters: .unasked)
        #expect(!plain.signoutFromBrowser && !plain.wipeAccount && !plain.wipeCacheForAllAccounts)
        let browser = MSALSignoutParameters()
        browser.signoutFromBrowser = true
        #expect(await codes { try await app.signout(with: account, signoutParameters: browser) } == invalid)
        for scopes in [[], [""]] {
            let silent = MSALSilentTokenParameters(scopes: scopes, account: account)
            #expect(await codes { _ = try await app.acquireTokenSilent(with: silent) } == invalid)
            let interactive = MSALInteractiveTokenParameters(scopes: scopes, webviewParameters: .unasked)
            #expect(await codes { _ = try await app.acquireToken(with: interactive) } == invalid)
        }
        #expect(try await app.currentAccount(with: nil).0 == account)
    }

    @Test("a browser sign-out without a page signs out of the device and fails")
    func browserWithoutPage() async throws {
        let account = try await app.signIn("ada").account
        let parameters = MSALSignoutParameters(webviewParameters: .unasked)
        parameters.signoutFromBrowser = true
        let error = await #expect(throws: NSError.self) {
            try await app.signout(with: account, signoutParameters: parameters)
        }
        #expect(error?.userInfo[MSALInternalErrorCodeKey] as? Int == MSALInternalError.internalErrorUnexpected.rawValue)
        let description = error?.userInfo[MSALErrorDescriptionKey] as? String
        #expect(description?.contains("endSessionURL") == true && description?.contains("is signed out") == true)
        #expect(try app.allAccounts() == [])
        #expect(try await app.told() == "- ada")
    }

    @Test("an account that is not current gets no sign-out and no token")
    func mismatch() async throws {
        let ada = try await app.signIn("ada").account
        try await app.signout(with: ada, signoutParameters: MSALSignoutParameters())
        _ = try await app.told()
        func signOut() async -> Codes? {
            await codes { try await app.signout(with: ada, signoutParameters: MSALSignoutParameters()) }
        }
        #expect(await signOut() == .internal(.internalErrorAccountRequired))
        let grace = try await app.signIn("grace").account
        let mismatched = Codes.internal(.internalErrorMismatchedUser)
        #expect(await signOut() == mismatched)
        let silent = MSALSilentTokenParameters(scopes: ["a"], account: ada)
        #expect(await codes { _ = try await app.acquireTokenSilent(with: silent) } == mismatched)
        // The request fails before the prompt, because the password could not be used.
        let interactive = MSALInteractiveTokenParameters(scopes: ["a"], webviewParameters: .unasked)
        interactive.account = ada
        #expect(await codes { _ = try await app.acquireToken(with: interactive) } == mismatched)
        interactive.account = nil
        for (hint, prompt) in [("ada", .default), ("Grace", .selectAccount)] as [(String, MSALPromptType)] {
            (interactive.loginHint, interactive.promptType) = (hint, prompt)
            #expect(await codes { _ = try await app.acquireToken(with: interactive) } == mismatched)
        }
        interactive.promptType = .default
        #expect(try await app.acquireToken(with: interactive).account == grace)
    }

    @Test("the prompt's outcomes have codes, and its errors are passed on unchanged")
    func prompts() async throws {
        func signIn(_ parameters: MSALWebviewParameters, account: MSALAccount? = nil) async -> Codes? {
            let parameters = MSALInteractiveTokenParameters(scopes: ["a"], webviewParameters: parameters)
            parameters.account = account
            return await codes { _ = try await app.acquireToken(with: parameters) }
        }
        #expect(await signIn(MSALWebviewParameters { _ in nil }) == Codes(.userCanceled))
        let wrong = MSALWebviewParameters { _ in MSALCredentials(username: "ada", password: "wrong") }
        #expect(await signIn(wrong) == .internal(.internalErrorAuthorizationFailed))
        let ada = try await app.signIn("ada").account
        try await app.signout(with: ada, signoutParameters: MSALSignoutParameters())
        #expect(await signIn(.typing("grace"), account: ada) == .internal(.internalErrorMismatchedUser))
        #expect(try await app.told() == "- ada")
        let throwing = MSALInteractiveTokenParameters(scopes: ["a"], webviewParameters: .unasked)
        await #expect(throws: DeviceOnPrivateBus.Unexpected.self) { _ = try await app.acquireToken(with: throwing) }
        let offered = MSALInteractiveTokenParameters(scopes: ["a"], webviewParameters: .typing())
        offered.account = ada
        #expect(try await app.acquireToken(with: offered).account == ada)
    }

    @Test("a second prompt of the same app is refused while the first is open")
    func oneAtATime() async throws {
        let (typed, type) = AsyncStream<Void>.makeStream()
        let isOpen = Locked(false)
        let slow = MSALWebviewParameters { _ in
            isOpen.withLock { $0 = true }
            for await _ in typed { break }
            return MSALCredentials(username: "ada", password: "correct horse ada")
        }
        let first = Task { [app] in
            let parameters = MSALInteractiveTokenParameters(scopes: ["a"], webviewParameters: slow)
            return try await app.acquireToken(with: parameters).account.username
        }
        try await eventually("the first prompt is open") { isOpen.withLock { $0 } }
        let second = MSALInteractiveTokenParameters(scopes: ["a"], webviewParameters: .unasked)
        let refusal = await codes { _ = try await app.acquireToken(with: second) }
        #expect(refusal == .internal(.internalErrorInteractiveSessionAlreadyRunning))
        type.yield()
        #expect(try await first.value == "ada")
        #expect(try await app.acquireToken(with: second).account.username == "ada")
    }

    @Test("listing accounts reports no change; the local list has the known account")
    func lists() async throws {
        let control = ControlApp(on: device)
        #expect(try app.allAccounts() == [])
        #expect(await codes { _ = try app.account(forUsername: "ada") } == .internal(.internalErrorAccountRequired))
        try await control.signIn("ada")
        let everybody = MSALAccountEnumerationParameters()
        let ada = try #require(try await app.accountsFromDevice(for: everybody).first)
        #expect(ada.username == "ada")
        let identifier = try #require(ada.identifier)
        let byIdentifier = MSALAccountEnumerationParameters(identifier: identifier)
        #expect(try await app.accountsFromDevice(for: byIdentifier) == [ada])
        let other = MSALAccountEnumerationParameters(identifier: nil, username: "grace")
        #expect(try await app.accountsFromDevice(for: other) == [])
        #expect(try app.account(forIdentifier: identifier) == ada && app.account(forUsername: "ADA") == ada)
        #expect(try app.accounts(for: other) == [])
        let objectId = try #require(ada.homeAccountId?.objectId)
        let profile = MSALAccountEnumerationParameters(tenantProfileIdentifier: objectId)
        profile.returnOnlySignedInAccounts = false
        #expect(try await app.accountsFromDevice(for: profile) == [ada] && app.accounts(for: profile) == [ada])
        #expect(try app.accounts(for: MSALAccountEnumerationParameters(tenantProfileIdentifier: identifier)) == [])
        // The removed account stays signed in, and is unknown to this app until a request names it again.
        try app.remove(ada)
        #expect(try app.allAccounts() == [])
        #expect(try await app.accountsFromDevice(for: everybody) == [ada])
        #expect(try app.allAccounts() == [ada])
        // None of these requests counted as a report.
        #expect(try await app.told() == "ada -")
        try await control.signOut()
        #expect(try await app.accountsFromDevice(for: everybody) == [])
        #expect(try app.allAccounts() == [])
        #expect(try await app.told() == "- ada")
    }

    @Test("without a broker each request fails with its code; an error names the cause")
    func noBroker() async throws {
        let account = try await app.signIn("ada").account
        device.killBroker()
        let interactive = MSALInteractiveTokenParameters(scopes: ["a"], webviewParameters: .unasked)
        let everybody = MSALAccountEnumerationParameters()
        let found = [
            await codes { _ = try await app.acquireToken(with: interactive) },
            await codes { try await app.signout(with: account, signoutParameters: MSALSignoutParameters()) },
            await codes { _ = try await app.accountsFromDevice(for: everybody) },
        ]
        #expect(found == Array(repeating: .internal(.internalBrokerNotAvailable), count: 3))
        let silent = MSALSilentTokenParameters(scopes: ["a"], account: account)
        let error = try await #require(throws: NSError.self) { _ = try await app.acquireTokenSilent(with: silent) }
        #expect(Codes(error) == .internal(.internalBrokerNotAvailable))
        let names = [MSALHomeAccountIdKey, MSALDisplayableUserIdKey].map { error.userInfo[$0] as? String }
        #expect(names == [account.identifier, "ada"])
        #expect((error.userInfo[MSALCorrelationIDKey] as? String).flatMap(UUID.init) != nil)
        #expect((error.userInfo[NSUnderlyingErrorKey] as? SharedDeviceError)?.code == .brokerUnavailable)
    }
}
