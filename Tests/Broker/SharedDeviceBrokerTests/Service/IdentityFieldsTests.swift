import DBus
import FoundationEssentials
import Identity
import SharedDevice
import Testing

@Suite("A sign-in with the provider, between the identity service and the broker")
struct IdentityFieldsTests {
    private func signIn(_ groups: PersonGroups) -> ProviderSignIn {
        ProviderSignIn(
            account: Account(identifier: "1.t", username: "ada"),
            record: ProviderRecord(
                person: ProviderRecord.Person(issuer: "https://login.example", subject: "ada"),
                session: nil,
                content: Secret("refresh")
            ),
            token: AccessToken(value: "token", scopes: [], expiresAt: Date(timeIntervalSince1970: 1)),
            groups: groups
        )
    }

    @Test(
        "groups arrive as they were sent",
        arguments: [PersonGroups.none, .known(["a", "b"]), .unknown(.elsewhere), .unknown(.malformed)]
    )
    func groups(groups: PersonGroups) throws {
        #expect(try ProviderSignIn(signIn(groups).fields).groups == groups)
    }

    @Test("groups that are missing or of another type are an error, and too many are not known")
    func malformed() throws {
        var fields = signIn(.none).fields
        for value in [nil, DBusValue.string("nurses"), .array([.uint32(7)], of: "u")] {
            fields.values["groups"] = value
            #expect(throws: IdentityError.self) { try ProviderSignIn(fields) }
        }
        fields.values["groups"] = .array((0...1000).map { .string("\($0)") }, of: "s")
        #expect(try ProviderSignIn(fields).groups == .unknown(.malformed))
        fields.values["groupsFlaw"] = .string("unheard of")
        #expect(throws: IdentityError.self) { try ProviderSignIn(fields) }
    }
}
