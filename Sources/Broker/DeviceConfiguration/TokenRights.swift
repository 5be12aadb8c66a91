import FoundationEssentials
import Identity
import StrictJSON

/// What an app may ask for in its tokens: keys of its manifest. Every token is issued to one client, the device; that each app keeps
/// to its own is the broker's to see to.
package struct TokenRights: Sendable, Equatable {
    /// The scopes of its tokens. With none it gets no token of an organisation's provider; `BrokerState` says what it gets of the device itself.
    package var scopes: Set<String> = []
    /// The client IDs by which Microsoft's clients that this app serves name themselves, in lower case.
    package var microsoftClientIdentifiers: Set<String> = []
    /// What is asked of the provider in place of a scope that such a client asks for.
    package var microsoftScopes: [String: Set<String>] = [:]

    package init() {}

    /// Those of the scopes that the app may not ask for, in alphabetical order.
    package func refused(of scopes: Set<String>) -> [String] { scopes.subtracting(self.scopes).sorted() }
}

extension TokenRights: Decodable {
    /// The keys as they are written.
    package enum Key: String, CodingKey, CaseIterable {
        case scopes, microsoftClientIDs, microsoftScopes
    }

    package init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: Key.self)
        scopes = Set(try values.scopes(.scopes) ?? [])
        let clients: [String] = try values.optional(.microsoftClientIDs) ?? []
        microsoftClientIdentifiers = Set(clients.compactMap { UUID(uuidString: $0)?.uuidString.lowercased() })
        guard microsoftClientIdentifiers.count == clients.count else {
            throw DecodingError.invalid(
                "it is no list of client IDs",
                remedy: "write each as 8-4-4-4-12 hexadecimal digits, and once, or leave the key out",
                at: [Key.microsoftClientIDs]
            )
        }
        let map: ScopeMap? = try values.optional(.microsoftScopes)
        microsoftScopes = map?.scopes ?? [:]
        if let scope = refused(of: Set(microsoftScopes.values.joined())).first {
            throw DecodingError.invalid(
                "it leads to “\(scope.printable(64))”, which the app may not ask for",
                remedy: "add it to scopes, or take it out here",
                at: [Key.microsoftScopes]
            )
        }
    }
}

/// Scopes, and those that are asked for in the place of each.
private struct ScopeMap: Decodable, WrittenForm {
    static let form =
        "an object of arrays, such as {\"https://graph.microsoft.com/.default\": [\"openid\", \"profile\"]}"

    let scopes: [String: Set<String>]

    init(from decoder: any Decoder) throws {
        let members: [String: [String]]
        do {
            members = try decoder.singleValueContainer().decode([String: [String]].self)
        } catch {
            throw DecodingError.otherForm(Self.self, at: decoder.codingPath)
        }
        guard members.keys.allSatisfy(AccessToken.isScope), members.values.joined().allSatisfy(AccessToken.isScope)
        else {
            throw DecodingError.invalid(
                "it has what is no scope",
                remedy: "write each as one word of visible ASCII, or leave the key out",
                at: decoder.codingPath
            )
        }
        scopes = members.mapValues(Set.init)
    }
}
