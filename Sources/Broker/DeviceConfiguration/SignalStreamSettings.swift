import Basics
import FoundationEssentials
import Identity

/// The stream of events that the provider keeps for this device (OpenID Shared Signals Framework 1.0, poll delivery by
/// RFC 8936). Each stream belongs to one device, because acknowledged events are not delivered again.
public struct SignalStreamSettings: Sendable, Equatable {
    /// The address of the events: the stream's `endpoint_url`.
    public var endpoint: String
    /// The stream's `aud`; `nil` means the client ID.
    public var audience: String?
    /// The device's identifier in the provider's events, of format `opaque`; `nil` if no event is about the device.
    public var device: String?
    /// The scopes of the token for the stream, if the device obtains it with its client ID and secret.
    public var scopes = ["ssf.read"]
}

extension SignalStreamSettings: Codable, WrittenForm {
    static let form = #"an object, such as {"endpoint": "https://login.example.com/streams/7/poll"}"#

    private enum CodingKeys: String, CodingKey, CaseIterable { case endpoint, audience, device, scopes }

    public init(from decoder: any Decoder) throws {
        self = try decoder.inForm(of: Self.self) { try Self(members: decoder) }
    }

    private init(members decoder: any Decoder) throws {
        func invalid(_ message: String, _ remedy: String) -> DecodingError { decoder.invalid(message, remedy: remedy) }
        if let name = try decoder.unknownKey(beside: CodingKeys.self) {
            guard name.lowercased().hasSuffix("secret") || name.lowercased().hasSuffix("token") else {
                let names = CodingKeys.allCases.map(\.rawValue).joined(separator: ", ")
                throw invalid("“\(name.printable(64))” means nothing here", "write \(names), or leave the key out")
            }
            throw invalid(
                "a secret must not be in a file that users may read",
                "remove it, and give it to the service as the systemd credential shared-signals-token"
            )
        }
        let values = try decoder.container(keyedBy: CodingKeys.self)
        func name(_ key: CodingKeys) throws -> String? {
            guard let text: String = try values.optional(key) else { return nil }
            guard (1...255).contains(text.utf8.count), text.unicodeScalars.allSatisfy({ !$0.isInvisible }) else {
                let remedy = "write it as the provider shows it, in 255 bytes at most, or leave it out"
                throw invalid("its “\(key.rawValue)” is no name", remedy)
            }
            return text
        }
        guard let address: WebAddress = try values.optional(.endpoint), HTTPAddress(address.text) != nil else {
            let remedy = "write the address at which the provider has the stream, without what follows #"
            throw invalid("it names no “endpoint”", remedy)
        }
        endpoint = address.text
        audience = try name(.audience)
        device = try name(.device)
        scopes = try values.optional(.scopes) ?? scopes
        guard Set(scopes).count == scopes.count, scopes.allSatisfy(AccessToken.isScope) else {
            let remedy = "write each as one word of visible ASCII, and once, or leave it out"
            throw invalid("its “scopes” is no list of scopes", remedy)
        }
    }
}
