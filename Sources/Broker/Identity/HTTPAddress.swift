import FoundationEssentials

/// The address of a resource on a server: `https`, or `http` for this machine only, because that connection cannot be
/// intercepted.
public struct HTTPAddress: Sendable, Hashable, CustomStringConvertible {
    /// The text as it was given.
    public let text: String
    /// In lower case, without the brackets of an IPv6 address.
    public let host: String
    public let isSecure: Bool
    private let origin: String
    private let path: String

    /// - Returns: `nil` for a malformed address: another scheme, no host, a username, a fragment, characters other than
    ///   visible ASCII, or more than 4096 bytes.
    public init?(_ text: String) {
        guard text.utf8.count <= 4096, text.utf8.allSatisfy({ (0x21...0x7E).contains($0) && $0 != 0x5C }),
            let url = URL(string: text, encodingInvalidCharacters: false),
            let host = url.host(percentEncoded: false)?.lowercased(), !host.isEmpty, url.user == nil,
            url.password == nil, url.fragment == nil
        else { return nil }
        let name = host.hasPrefix("[") ? String(host.dropFirst().dropLast()) : host
        let scheme = url.scheme?.lowercased()
        guard scheme == "https" || (scheme == "http" && Self.isThisMachine(name)) else { return nil }
        self.text = text
        self.host = name
        isSecure = scheme == "https"
        origin = "\(isSecure ? "https" : "http")://\(host)\(url.port.map { ":\($0)" } ?? "")"
        path = url.path(percentEncoded: true)
    }

    private static func isThisMachine(_ host: String) -> Bool { ["localhost", "127.0.0.1", "::1"].contains(host) }

    /// Scheme, host and path. The query is left out, because it may contain codes and tokens.
    public var description: String { origin + path }

    public var hasQuery: Bool { text.contains("?") }

    /// Appends fields to the query, and encodes them.
    public func adding(query: [(String, String)]) -> String { text + (hasQuery ? "&" : "?") + FormFields.encode(query) }
}
