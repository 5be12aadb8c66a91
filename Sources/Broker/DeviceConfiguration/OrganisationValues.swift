import Basics
import FoundationEssentials
import Glibc
import Identity

// The values of the keys about the organisation's provider.

/// Whether to request tokens that outlive the provider's own session (`offline_access`). The raw values are in files.
public enum OfflineAccess: String, Sendable, Codable, CaseIterable {
    /// The end of the provider's session also ends the device's.
    case never
    case always
}

/// The reaction to the end of the provider's session. The raw values are in files.
public enum SessionEndAction: String, Sendable, Codable, CaseIterable {
    case signOut
    /// The session stays, and the person signs in again before the next token.
    case reauthenticate
}

/// The issuer identifier of a provider: an address without a query (OpenID Connect Discovery 1.0, section 1.2).
public struct IssuerAddress: Sendable, Equatable, Codable {
    public let text: String

    public init(from decoder: any Decoder) throws {
        text = try WebAddress(from: decoder).text
        // The address of the provider's metadata is longer than the identifier.
        guard let address = HTTPAddress(text + "/.well-known/oauth-authorization-server"), !address.hasQuery else {
            throw decoder.invalid(
                "“\(text)” is no name of a provider",
                remedy: "write the address without what follows ? and #, and at most 4000 bytes, as the provider's own "
                    + "description has it"
            )
        }
        for description in ["openid-configuration", "oauth-authorization-server"] {
            let ending = "/.well-known/" + description
            guard text.hasSuffix(ending) else { continue }
            let message = "“\(text)” is the address of the provider's description, and not the provider's name"
            throw decoder.invalid(message, remedy: "leave \(ending) out")
        }
    }

    public func encode(to encoder: any Encoder) throws { try text.encode(to: encoder) }

    /// Compares bytes, as the provider does. Swift's string comparison treats some different texts as equal.
    public static func == (left: IssuerAddress, right: IssuerAddress) -> Bool {
        left.text.utf8.elementsEqual(right.text.utf8)
    }
}

/// Ports of this machine, without duplicates.
public struct PortList: Sendable, Equatable, Codable, WrittenForm {
    static let form = "an array of numbers from 1024 to 65535, each once"
    private static let most = 16

    public let ports: [UInt16]

    public init(_ ports: [UInt16]) { self.ports = ports }

    public init(from decoder: any Decoder) throws {
        let numbers: [Double]
        do {
            numbers = try decoder.singleValueContainer().decode([Double].self)
        } catch {
            throw decoder.otherForm(Self.self)
        }
        ports = numbers.compactMap(UInt16.init(exactly:)).filter { $0 >= 1024 }
        guard ports.count == numbers.count, Set(ports).count == ports.count, ports.count <= Self.most else {
            let remedy = "write \(Self.form), or leave the key out"
            throw decoder.invalid("it is no list of \(Self.most) ports at most", remedy: remedy)
        }
    }

    public func encode(to encoder: any Encoder) throws { try ports.encode(to: encoder) }
}

/// Addresses that override the provider's metadata, by the metadata's names (RFC 8414, section 2).
public struct ProviderEndpoints: Sendable, Equatable, Codable, WrittenForm {
    static let form = "an object of addresses, such as {\"token_endpoint\": \"https://login.example.com/token\"}"
    /// The valid names.
    public static let names = [
        "authorization_endpoint", "device_authorization_endpoint", "end_session_endpoint", "jwks_uri",
        "revocation_endpoint", "token_endpoint", "userinfo_endpoint",
    ]

    public let addresses: [String: String]

    public init() { addresses = [:] }

    public init(from decoder: any Decoder) throws {
        let members = try decoder.inForm(of: Self.self) {
            try decoder.singleValueContainer().decode([String: WebAddress].self)
        }
        if let unknown = members.keys.sorted().first(where: { !Self.names.contains($0) }) {
            throw decoder.invalid(
                "“\(unknown.printable(64))” is no endpoint",
                remedy: "write \(Self.names.joined(separator: ", ")), or leave the key out"
            )
        }
        addresses = members.mapValues(\.text)
        if let text = addresses.values.sorted().first(where: { HTTPAddress($0) == nil }) {
            let message = "“\(text.printable(64))” has a fragment, which no server is sent"
            throw decoder.invalid(message, remedy: "write the address without what follows #")
        }
    }

    public func encode(to encoder: any Encoder) throws { try addresses.encode(to: encoder) }
}

/// An address to listen on: `ADDRESS:PORT` with a numeric address, or the absolute path of a socket.
public enum ListeningAddress: Sendable, Equatable, WrittenText {
    public static let flaw = "is no address to listen at"
    public static let remedy =
        "write ADDRESS:PORT with a numeric address, such as 127.0.0.1:8443, or a socket's absolute path, or leave the key out"

    /// The address without brackets.
    case network(address: String, port: UInt16)
    case socket(path: String)

    /// Returns `nil` for anything else, such as host names, which would need a lookup.
    public init?(_ text: String) {
        if text.hasPrefix("/") {
            // The kernel's limit for the path of a socket.
            guard text.utf8.count < 108, !text.hasSuffix("/"), !text.utf8.contains(0) else { return nil }
            self = .socket(path: text)
            return
        }
        var bytes = in6_addr()
        guard let match = text.wholeMatch(of: /(?:\[([0-9a-fA-F:]+)\]|([0-9]+\.[0-9]+\.[0-9]+\.[0-9]+)):([0-9]{1,5})/),
            let port = UInt16(match.3), port > 0, let address = (match.1 ?? match.2).map(String.init),
            inet_pton(match.1 == nil ? AF_INET : AF_INET6, address, &bytes) == 1
        else { return nil }
        self = .network(address: address, port: port)
    }

    public var text: String {
        switch self {
        case .network(let address, let port): address.contains(":") ? "[\(address)]:\(port)" : "\(address):\(port)"
        case .socket(let path): path
        }
    }
}
