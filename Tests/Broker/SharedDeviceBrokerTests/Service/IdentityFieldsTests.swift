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

    @Test("groups arrive as they were sent; malformed groups are an error or not known")
    func groups() throws {
        for groups in [PersonGroups.none, .known(["a", "b"]), .unknown(.elsewhere), .unknown(.malformed)] {
            #expect(try ProviderSignIn(signIn(groups).fields).groups == groups)
        }
        var fields = signIn(.none).fields
        for value in [nil, DBusValue.string("nurses"), .array([.uint32(7)], of: "u")] {
            fields["groups"] = value
            #expect(throws: IdentityError.self) { try ProviderSignIn(fields) }
        }
        // Too many groups are not known.
        fields["groups"] = .array((0...1000).map { .string("\($0)") }, of: "s")
        #expect(try ProviderSignIn(fields).groups == .unknown(.malformed))
        fields["groupsFlaw"] = .string("unheard of")
        #expect(throws: IdentityError.self) { try ProviderSignIn(fields) }
    }
}
