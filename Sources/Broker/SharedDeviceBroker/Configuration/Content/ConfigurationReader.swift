import Foundation

/// Reads values by key, each with its type and its bounds. A key that is absent is `nil`; one that is there and wrong is an
/// error, never a guess.
struct ConfigurationReader {
    let file: String
    let format: ConfigurationFormat
    let values: [String: ConfigurationValue]

    /// A Boolean. Nothing else counts: an integer 1 was meant for another key.
    func boolean(_ key: String) throws(ManagedConfigurationError) -> Bool? {
        switch values[key] {
        case nil: nil
        case .boolean(let value)?: value
        default: throw wrongType(key, .boolean)
        }
    }

    /// An integer that is 0 or 1, as the SSO plug-in has its switches. In JSON also a Boolean.
    func flag(_ key: String) throws(ManagedConfigurationError) -> Bool? {
        switch values[key] {
        case nil: nil
        case .integer(0)?: false
        case .integer(1)?: true
        case .boolean(let value)? where format == .json: value
        case .integer(let value)?:
            throw invalid(key, "it is \(value)", remedy: "write \(format.writing(.flag)), or leave the key out")
        default: throw wrongType(key, .flag)
        }
    }

    /// Any string.
    func text(_ key: String) throws(ManagedConfigurationError) -> String? {
        switch values[key] {
        case nil: nil
        case .string(let value)?: value
        default: throw wrongType(key, .string)
        }
    }

    /// A string with something in it.
    func string(_ key: String) throws(ManagedConfigurationError) -> String? {
        guard let value = try text(key) else { return nil }
        guard !value.allSatisfy(\.isWhitespace) else { throw invalid(key, "it is empty", remedy: "leave the key out") }
        return value
    }

    /// An array of strings, which may be empty.
    func strings(_ key: String) throws(ManagedConfigurationError) -> [String]? {
        guard let value = values[key] else { return nil }
        guard case .array(let elements) = value else { throw wrongType(key, .strings) }
        var strings: [String] = []
        for element in elements {
            guard case .string(let string) = element else { throw wrongType(key, .strings) }
            strings.append(string)
        }
        return strings
    }

    /// A string that lists identifiers with commas between. Blanks around them do not count.
    func identifiers(_ key: String) throws(ManagedConfigurationError) -> [String]? {
        guard let value = try text(key) else { return nil }
        let identifiers = value.split(separator: ",", omittingEmptySubsequences: false)
            .map { $0.trimmingCharacters(in: .whitespacesAndNewlines) }
        for identifier in identifiers {
            // An empty prefix would be the beginning of every identifier.
            guard !identifier.isEmpty else {
                throw invalid(
                    key,
                    value.allSatisfy(\.isWhitespace) ? "it is empty" : "it has an empty element",
                    remedy: "write identifiers with one comma between each two, or leave the key out"
                )
            }
            guard identifier.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }) else {
                throw invalid(
                    key,
                    "“\(identifier)” is no identifier",
                    remedy: "write identifiers such as com.example.app, with commas between"
                )
            }
        }
        return identifiers
    }

    /// A number of seconds, at most a year of them.
    func seconds(_ key: String, mayBeZero: Bool) throws(ManagedConfigurationError) -> Duration? {
        let seconds: Double
        switch values[key] {
        case nil: return nil
        case .integer(let value)?: seconds = Double(value)
        case .number(let value)?: seconds = value
        default: throw wrongType(key, .number)
        }
        let year = 366.0 * 86_400
        // A comparison with what is not a number is false.
        guard seconds >= 0, seconds <= year, mayBeZero || seconds > 0 else {
            throw invalid(
                key,
                "it is \(seconds) seconds",
                remedy:
                    "write a number of seconds, \(mayBeZero ? "0 or more" : "more than 0") and at most a year, or leave "
                    + "the key out"
            )
        }
        return .seconds(seconds)
    }

    func wrongType(_ key: String, _ type: ConfigurationFormat.ValueType) -> ManagedConfigurationError {
        .wrongType(file: file, key: key, remedy: "write \(format.writing(type)), or leave the key out")
    }

    func invalid(_ key: String, _ message: String, remedy: String) -> ManagedConfigurationError {
        ManagedConfigurationError(.invalidValue, file: file, key: key, message: message, remedy: remedy)
    }
}

extension ManagedConfigurationError {
    static func wrongType(file: String, key: String, remedy: String) -> ManagedConfigurationError {
        ManagedConfigurationError(
            .wrongType,
            file: file,
            key: key,
            message: "the value is of the wrong type",
            remedy: remedy
        )
    }
}
