import Basics
import Identity
import OpenIDConnect
import SharedDevice
import Testing

@testable import OrganisationIdentity

@Suite("Accounts of sign-ins")
struct AccountMappingTests {
    private let issuer = Issuer("https://login.example.com/realm")
    private let tenant = "11111111-2222-3333-4444-555555555555"
    private let object = "AAAAAAAA-2222-3333-4444-555555555555"

    private func account(
        _ issuer: Issuer?,
        _ identity: [String: JSONValue],
        names: [String: JSONValue] = [:]
    ) throws -> Account {
        try AccountMapping.account(
            issuer: #require(issuer),
            subject: "ada",
            identity: .object(identity),
            names: .object(names)
        )
    }

    private func identifier(_ issuer: Issuer?, _ claims: [String: JSONValue]) throws -> String {
        try account(issuer, claims).identifier
    }

    @Test("the account has tenant and Entra's object, or derives from issuer and subject")
    func identifiers() throws {
        // Name-based UUIDs (RFC 4122).
        let named = "54d980d6-90c8-5fb8-82a5-84cd5316e03a.f6a7ca36-dfe5-5538-b963-373aa0e5705a"
        #expect(try identifier(issuer, ["tid": .string("contoso")]) == named)
        let claims: [String: JSONValue] = ["tid": .string(tenant), "oid": .string(object)]
        #expect(try identifier(issuer, claims) == "86a521c8-80ca-5720-ae91-57f3496eac09.\(tenant)")
        let entra = Issuer("https://login.microsoftonline.com/\(tenant)/v2.0")
        #expect(try identifier(entra, claims) == "\(object.lowercased()).\(tenant)")
        // Another host that only looks like Entra's.
        let look = Issuer("https://login.microsoftonline.com.example.com/")
        #expect(try identifier(look, claims).hasPrefix("86a521c8"))
        // The names from userinfo do not count.
        for issuer in [issuer, entra] {
            #expect(try account(issuer, [:], names: claims) == account(issuer, [:]))
        }
    }

    @Test(
        "the username is the first available claim, in one printable line",
        arguments: [
            ([("preferred_username", "p"), ("upn", "u"), ("email", "e")], "p"),
            ([("preferred_username", ""), ("upn", "u"), ("email", "e")], "u"),
            ([("email", "e")], "e"), ([], "ada"),
            ([("email", "a\u{202E}\nb")], "a\u{FFFD}\u{FFFD}b"),
        ]
    )
    func names(claims: [(String, String)], name: String) throws {
        let members = Dictionary(uniqueKeysWithValues: claims.map { ($0.0, JSONValue.string($0.1)) })
        let account = try account(issuer, [:], names: members.merging(["name": .string("Ada")]) { $1 })
        #expect(account.username == name && account.displayName == "Ada")
    }

    @Test(
        "the groups are those of the claim, unless the provider keeps some elsewhere or the claim has another form",
        arguments: [
            ("{}", .none), (#"{"groups": []}"#, .none), (#"{"groups": ["a", "b"]}"#, .known(["a", "b"])),
            (#"{"groups": ["a", "b\u0000c"]}"#, .known(["a"])),
            (#"{"groups": ["a"], "hasgroups": false}"#, .known(["a"])),
            (#"{"groups": ["a"], "hasgroups": true}"#, .unknown(.elsewhere)),
            (#"{"hasgroups": "true"}"#, .unknown(.elsewhere)),
            (#"{"groups": ["a"], "_claim_names": {"groups": "src1"}}"#, .unknown(.elsewhere)),
            (#"{"groups": ["a"], "_claim_names": {"address": "src1"}}"#, .known(["a"])),
            (#"{"groups": ["a"], "_claim_names": "groups"}"#, .unknown(.malformed)),
            (#"{"groups": "a"}"#, .unknown(.malformed)), (#"{"groups": ["a", 7]}"#, .unknown(.malformed)),
            (#"{"groups": null}"#, .unknown(.malformed)), (#"{"groups": {"a": true}}"#, .unknown(.malformed)),
            (#"{"groups": [""]}"#, .unknown(.malformed)),
        ] as [(String, PersonGroups)]
    )
    func groups(claims: String, groups: PersonGroups) throws {
        #expect(
            PersonGroups(claims: try JSONValue(parsing: Array(claims.utf8), limits: JSONLimits(size: 1000))) == groups
        )
    }
}
