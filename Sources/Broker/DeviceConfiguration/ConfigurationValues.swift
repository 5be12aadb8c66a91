import Basics
import FoundationEssentials
import Identity

// The values of the managed configuration that are more than a Boolean or a string. Each is encoded as it was read.

/// The source of identities. The raw values are in files.
public enum IdentitySource: String, Sendable, Codable, CaseIterable {
    /// The device's own directory of users.
    case embedded
    /// The organisation's own provider, by OpenID Connect: ``OrganisationSettings``.
    case oidc
    /// logind: the user who is logged in at the machine's seat.
    case loginSession = "login-session"
}

/// A value that is written as a string.
public protocol WrittenText: Codable {
    /// The description of a string that is not such a value, which follows “…”; and the remedy.
    static var flaw: String { get }
    static var remedy: String { get }

    /// Returns `nil` for an invalid string.
    init?(_ text: String)

    var text: String { get }
}

extension WrittenText {
    public init(from decoder: any Decoder) throws {
        let text = try decoder.singleValueContainer().decode(String.self)
        guard let value = Self(text) else { throw decoder.invalid("“\(text)” \(Self.flaw)", remedy: Self.remedy) }
        self = value
    }

    public func encode(to encoder: any Encoder) throws { try text.encode(to: encoder) }
}

/// A number of seconds, at most a year.
public struct Seconds: Sendable, Equatable, Codable {
    public let value: Double

    public init(_ value: Double) { self.value = value }

    public init(from decoder: any Decoder) throws {
        value = try decoder.singleValueContainer().decode(Double.self)
        // A comparison with NaN is false.
        guard value >= 0, value <= 366 * 86_400 else {
            let remedy = "write a number of seconds, 0 or more and at most a year, or leave the key out"
            throw decoder.invalid("it is \(text)", remedy: remedy)
        }
    }

    public func encode(to encoder: any Encoder) throws { try value.encode(to: encoder) }

    public var duration: Duration { .seconds(value) }

    /// As people write it: 1 second, 2.5 seconds.
    var text: String {
        let number = Int(exactly: value).map { "\($0)" } ?? "\(value)"
        return number == "1" ? "1 second" : "\(number) seconds"
    }
}

/// A time of a local day, to the minute: `HH:MM`.
public struct TimeOfDay: Sendable, Equatable, WrittenText {
    public static let flaw = "is no time of day"
    public static let remedy = "write each as HH:MM, from 00:00 to 23:59, such as 07:30"

    /// Since midnight.
    public let minutes: Int

    /// Returns `nil` if `text` is not of the form `HH:MM`, with two digits each, from 00:00 to 23:59.
    public init?(_ text: String) {
        guard let match = text.wholeMatch(of: /([01][0-9]|2[0-3]):([0-5][0-9])/), let hour = Int(match.1),
            let minute = Int(match.2)
        else { return nil }
        minutes = hour * 60 + minute
    }

    public var text: String {
        [minutes / 60, minutes % 60].map { ($0 < 10 ? "0" : "") + "\($0)" }.joined(separator: ":")
    }
}

/// An address for a browser: an `HTTPAddress`, optionally with a fragment.
public struct WebAddress: Sendable, Equatable, WrittenText {
    public static let flaw = "is no https address"
    public static let remedy =
        "write an address such as https://login.example.com/logout (http for this machine only), or leave the key out"

    public let text: String

    public init?(_ text: String) {
        // Only a browser accepts a fragment; addresses that this device itself requests have none.
        guard HTTPAddress(String(text.prefix { $0 != "#" })) != nil,
            URL(string: text, encodingInvalidCharacters: false) != nil
        else { return nil }
        self.text = text
    }
}

extension KeyedDecodingContainer {
    /// The identifiers of a string with commas between them. Blanks around the identifiers are ignored.
    func identifiers(_ key: Key) throws -> [String]? {
        guard let text: String = try optional(key) else { return nil }
        let identifiers = text.split(separator: ",", omittingEmptySubsequences: false).map { part in
            let rest = part.drop(while: \.isWhitespace)
            return rest.lastIndex { !$0.isWhitespace }.map { String(rest[...$0]) } ?? ""
        }
        // An empty prefix would match every identifier.
        guard !identifiers.contains("") else {
            let message = identifiers.count == 1 ? "it is empty" : "it has an empty element"
            let remedy = "write identifiers with one comma between each two, or leave the key out"
            throw DecodingError.invalid(message, remedy: remedy, at: [key])
        }
        for identifier in identifiers where !identifier.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }) {
            let remedy = "write identifiers such as com.example.app, with commas between"
            throw DecodingError.invalid("“\(identifier)” is no identifier", remedy: remedy, at: [key])
        }
        return identifiers
    }
}

/// A switch of the SSO plug-in: the integer 0 or 1, or a Boolean.
struct Switch: Decodable, WrittenForm {
    static let form = "0 or 1"

    let isOn: Bool

    init(from decoder: any Decoder) throws {
        let value = try decoder.singleValueContainer()
        let isTrue = try? value.decode(Bool.self)
        guard let number = isTrue.map({ $0 ? 1 : 0 }) ?? (try? value.decode(Int.self)) else {
            throw decoder.otherForm(Self.self)
        }
        guard number == 0 || number == 1 else {
            throw decoder.invalid("it is \(number)", remedy: "write \(Self.form), or leave the key out")
        }
        isOn = number == 1
    }
}
