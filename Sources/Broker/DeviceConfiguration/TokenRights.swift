import Basics
import FoundationEssentials
import Identity

/// The rights of an app to tokens: keys of its manifest. Every token is issued to one client, the device.
public struct TokenRights: Sendable, Equatable {
    /// The scopes of the app's tokens. Without any, the app receives no token of an organisation's provider.
    public var scopes: Set<String> = []
    /// The client IDs, in lower case, of Microsoft's clients that this app serves.
    public var microsoftClientIdentifiers: Set<String> = []
    /// The replacements of scopes that such a client requests: the provider is asked for these instead.
    public var microsoftScopes: [String: Set<String>] = [:]

    public init() {}

    /// The scopes that the app may not request, in alphabetical order.
    public func refused(of scopes: Set<String>) -> [String] { scopes.subtracting(self.scopes).sorted() }
}

extension TokenRights: Decodable {
    public enum Key: String, CodingKey, CaseIterable, Sendable { case scopes, microsoftClientIDs, microsoftScopes }

    public init(from decoder: any Decoder) throws {
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
        microsoftScopes = (try values.optional(.microsoftScopes) as ScopeMap?)?.scopes ?? [:]
        if let scope = refused(of: Set(microsoftScopes.values.joined())).first {
            throw DecodingError.invalid(
                "it leads to “\(scope.printable(64))”, which the app may not ask for",
                remedy: "add it to scopes, or take it out here",
                at: [Key.microsoftScopes]
            )
        }
    }
}

/// Scopes with their replacements.
private struct ScopeMap: Decodable, WrittenForm {
    static let form = #"an object of arrays, such as {"https://graph.microsoft.com/.default": ["openid", "profile"]}"#

    let scopes: [String: Set<String>]

    init(from decoder: any Decoder) throws {
        let members = try decoder.inForm(of: Self.self) {
            try decoder.singleValueContainer().decode([String: [String]].self)
        }
        guard members.keys.allSatisfy(AccessToken.isScope), members.values.joined().allSatisfy(AccessToken.isScope)
        else {
            let remedy = "write each as one word of visible ASCII, or leave the key out"
            throw decoder.invalid("it has a text that is no scope", remedy: remedy)
        }
        scopes = members.mapValues(Set.init)
    }
}
