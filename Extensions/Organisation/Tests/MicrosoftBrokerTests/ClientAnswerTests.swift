import Basics
import Cryptography
import DeviceConfiguration
import Foundation
import Testing

@testable import MicrosoftBroker
@testable import SharedDevice

@Suite("The responses to Microsoft's clients")
struct ClientAnswerTests {
    private static let account = Account(
        identifier: "11111111-2222-3333-4444-555555555555.aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee",
        username: "ada@example.com",
        displayName: "Ada"
    )
    private static let now = Date(timeIntervalSince1970: 1_800_000_000)

    private static func idToken(_ claims: String) -> String { "e30.\(Base64URL.encode(claims.utf8)).c2ln" }

    private func answer(_ idToken: String?, lifetime: TimeInterval = 3600) throws(BrokerFailure) -> JSONValue {
        try ClientAnswers.token(
            TokenResult(
                accessToken: "token",
                expiresOn: Self.now.addingTimeInterval(lifetime),
                scopes: ["openid"],
                account: Self.account,
                idToken: idToken
            ),
            requested: ["https://graph.microsoft.com/.default", "openid"],
            now: Self.now
        )
    }

    @Test("a token has its members and four minutes, and needs an ID token with a name")
    func token() throws {
        let idToken = Self.idToken(
            #"{"preferred_username":"ada@example.com","given_name":"Ada","family_name":"Lovelace"}"#
        )
        let token = try #require(try answer(idToken)["brokerTokenResponse"])
        #expect(token["accessToken"]?.string == "token" && token["accessTokenType"]?.number == 0)
        #expect(token["idToken"]?.string == idToken)
        #expect(token["expiresOn"]?.number == 1_800_000_240_000 && token["extendedExpiresOn"] == token["expiresOn"])
        #expect(token["grantedScopes"]?.string == "https://graph.microsoft.com/.default openid")
        #expect(token["account"]?["familyName"]?.string == "Lovelace")
        let information = try #require(token["clientInfo"]?.string)
        let padded = information + String(repeating: "=", count: (4 - information.count % 4) % 4)
        #expect(
            Data(base64Encoded: padded).map { String(decoding: $0, as: UTF8.self) }
                == #"{"uid":"11111111-2222-3333-4444-555555555555","utid":"aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"}"#
        )
        let short = try answer(idToken, lifetime: 60)["brokerTokenResponse"]
        #expect(short?["expiresOn"]?.number == 1_800_000_060_000)
        for (idToken, reason) in [
            (nil, "must have in scopes those of openid, profile"), (Self.idToken(#"{"sub":"1"}"#), "profile"),
            (Self.idToken("no"), "read"), ("x", "read"),
        ] as [(String?, String)] {
            let error = #expect(throws: BrokerFailure.self) { try self.answer(idToken) }
            #expect(error?.status == .incorrectConfiguration && error?.context.contains(reason) == true)
        }
    }

    @Test("each failure of the device's broker has a client status")
    func numbers() {
        for (code, status) in [
            (SharedDeviceError.Code.noCurrentAccount, 2), (.providerUnavailable, 3), (.userCanceled, 7),
            (.loginExpired, 8),
            (.appNotEligible, 9), (.providerMisconfigured, 9), (.scopesDeclined, 9), (.interactionRequired, 13),
            (.cleanupRequired, 14),
            (.brokerUnavailable, 15), (.cleanupPending, 15), (.tooManyAttempts, 15), (.currentAccountMismatch, 16),
            (.notSharedDevice, 9), (.brokerFailed, 0),
        ] as [(SharedDeviceError.Code, Int)] {
            let failure = BrokerFailure(SharedDeviceError(code, attempted: "x", message: "y"))
            #expect(failure.status.rawValue == status, "\(code)")
        }
        #expect(BrokerFailure(.noNetwork, "x").answer(to: .getAccounts)["brokerTokenResponse"] == nil)
        #expect(BrokerFailure(.noNetwork, "x").answer(to: .acquireTokenInteractively).status == 3)
    }

    @Test("a scope that the provider did not grant is named, except those of each sign-in")
    func granted() throws {
        let replaced: [String: JSONValue] = ["microsoftScopes": .object(["m/.default": .array([.string("mail")])])]
        let rights = try Self.manifest(["mail", "openid"], more: replaced)
        #expect(try rights.providerScopes(for: ["m/.default", "openid", "offline_access"]) == ["mail", "openid"])
        try rights.check(granted: ["mail"], for: ["m/.default", "openid", "offline_access"])
        let error = #expect(throws: BrokerFailure.self) { try rights.check(granted: [], for: ["m/.default"]) }
        #expect(error?.status == .incorrectConfiguration && error?.context.contains("mail") == true)
        // A scope for all configured rights does not count as missing.
        let all = "https://graph.microsoft.com/.default"
        let graph = try Self.manifest([all, "openid"])
        #expect(try graph.providerScopes(for: ["HTTPS://graph.microsoft.com/.DEFAULT"]) == [all])
        try graph.check(granted: ["User.Read", "Mail.Read"], for: [all])
    }

    @Test(
        "short scopes mean Microsoft Graph, and case does not matter",
        arguments: [
            ("User.Read", "https://graph.microsoft.com/User.Read"),
            ("https://graph.microsoft.com/User.Read", "User.Read"),
            ("user.read", "User.Read"),
            ("https://graph.microsoft.com/user.read", "HTTPS://graph.microsoft.com/User.Read"),
            ("https://orders.example/Orders.Read", "https://orders.example/orders.read"),
        ]
    )
    func names(asked: String, granted: String) throws {
        let graph = "https://graph.microsoft.com/User.Read"
        let manifest = try Self.manifest([asked, "openid"])
        #expect(try manifest.providerScopes(for: [asked, "OpenID"]) == [asked, "openid"].sorted())
        try manifest.check(granted: [granted, "openid"], for: [asked])
        // The client's name is accepted, whichever name the manifest uses.
        let other = try Self.manifest([granted])
        #expect(try other.providerScopes(for: [asked]) == [granted])
        for stranger in [
            "https://elsewhere.example/User.Read", "Mail.Read", "https://graph.microsoft.com.example/User.Read",
        ] {
            #expect(throws: BrokerFailure.self) { try Self.manifest([graph]).providerScopes(for: [stranger]) }
            #expect(throws: BrokerFailure.self) { try Self.manifest([graph]).check(granted: [stranger], for: [asked]) }
        }
    }

    @Test(
        "claims beyond the client's capabilities count as a demand",
        arguments: [
            (#"{"access_token":{"xms_cc":{"values":["cp1"]}}}"#, false), ("{}", false), ("", false),
            (#"{"access_token":{"nbf":{"essential":true}}}"#, true), (#"{"access_token":null}"#, true),
            (#"{"access_token":{"xms_cc":{"values":["cp1"]},"acrs":{"value":"c1"}}}"#, true),
            (#"{"id_token":{"auth_time":{"essential":true}}}"#, true),
        ]
    )
    func claims(_ claims: String, isDemand: Bool) throws {
        #expect(try ClientRequest(Device.parameters(claims: claims).text).claims == (isDemand ? claims : nil))
        // Claims other than a JSON object violate the contract.
        for malformed in ["x", "[]", #"{"a":1,"a":2}"#] {
            let text = Device.parameters(claims: malformed).text
            let error = #expect(throws: BrokerFailure.self) { try ClientRequest(text) }
            #expect(error?.status == .apiContractViolation)
        }
    }

    private static func manifest(_ scopes: [String], more: [String: JSONValue] = [:]) throws -> TokenRights {
        let members: [String: JSONValue] = [
            "id": .string("a.b"), "executable": .string("/x"), "scopes": .array(scopes.map { .string($0) }),
        ]
        let json = JSONValue.object(members.merging(more) { $1 })
        return try AppManifest(json: Data(json.text.utf8), file: "m").tokens
    }
}
