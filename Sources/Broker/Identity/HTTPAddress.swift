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

/// The encoding of queries and of `application/x-www-form-urlencoded`.
public enum FormFields {
    /// The media type of a request's body.
    public static let contentType = "application/x-www-form-urlencoded"

    /// Percent-encodes everything except letters, digits and `-._~`, also spaces.
    public static func encode(_ fields: [(String, String)]) -> String {
        fields.map { encode($0) + "=" + encode($1) }.joined(separator: "&")
    }

    public static func encode(_ text: String) -> String {
        var encoded: [UInt8] = []
        let digits = Array("0123456789ABCDEF".utf8)
        for byte in text.utf8 {
            switch byte {
            case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, 0x2D, 0x2E, 0x5F, 0x7E: encoded.append(byte)
            default: encoded += [0x25, digits[Int(byte >> 4)], digits[Int(byte & 0xF)]]
            }
        }
        return String(decoding: encoded, as: UTF8.self)
    }

    /// Decodes the fields of a query; `nil` if a name is repeated, an escape is malformed, or a value is not UTF-8. No
    /// server that follows the protocol sends such a query.
    public static func decode(_ query: String) -> [String: String]? {
        var fields: [String: String] = [:]
        for field in query.utf8.split(separator: UInt8(ascii: "&")) {
            let parts = field.split(separator: UInt8(ascii: "="), maxSplits: 1, omittingEmptySubsequences: false)
            guard let name = decode(parts[0]), let value = decode(parts.count > 1 ? parts[1] : ""[...].utf8),
                fields.updateValue(value, forKey: name) == nil
            else { return nil }
        }
        return fields
    }

    private static func decode(_ text: Substring.UTF8View) -> String? {
        var bytes: [UInt8] = []
        var rest = text[...]
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "%") else {
                bytes.append(byte == UInt8(ascii: "+") ? 0x20 : byte)
                continue
            }
            let digits = rest.prefix(2)
            guard digits.count == 2, let high = hexadecimal(digits.first), let low = hexadecimal(digits.last) else {
                return nil
            }
            bytes.append(high << 4 | low)
            rest = rest.dropFirst(2)
        }
        return String(validating: bytes, as: UTF8.self)
    }

    private static func hexadecimal(_ digit: UInt8?) -> UInt8? {
        digit.flatMap { Character(Unicode.Scalar($0)).hexDigitValue }.map(UInt8.init)
    }
}
