import Foundation

/// Parses what a file holds, whatever its form.
struct ConfigurationContent {
    let format: ConfigurationFormat
    /// The outermost dictionary.
    let members: [String: ConfigurationValue]

    /// - Throws: `ManagedConfigurationError`: `signed`, `invalidJSON`, `invalidPropertyList`.
    init(_ content: Data, file: String) throws(ManagedConfigurationError) {
        switch ConfigurationFormat.appearance(of: content) {
        case .signed(let encoding):
            throw .signed(file: file, encoding: encoding)
        case .json:
            try self.init(json: content, file: file)
        case .xmlPropertyList:
            guard XMLNesting.isWithin(ConfigurationValue.maximumDepth, content) else {
                throw .unusable(.propertyList, file: file, message: "it is nested too deeply")
            }
            fallthrough
        case .binaryPropertyList:
            let decoder = PropertyListDecoder()
            if let key = ConfigurationValue.Count.key { decoder.userInfo[key] = ConfigurationValue.Count() }
            try self.init(.propertyList, file: file) { try decoder.decode(ConfigurationValue.self, from: content) }
        }
    }

    /// - Throws: `ManagedConfigurationError`: `invalidJSON`.
    init(json content: Data, file: String) throws(ManagedConfigurationError) {
        let decoder = JSONDecoder()
        if let key = ConfigurationValue.Count.key { decoder.userInfo[key] = ConfigurationValue.Count() }
        try self.init(.json, file: file) { try decoder.decode(ConfigurationValue.self, from: content) }
    }

    private init(
        _ format: ConfigurationFormat,
        file: String,
        decode: () throws -> ConfigurationValue
    ) throws(ManagedConfigurationError) {
        self.format = format
        let value: ConfigurationValue
        do {
            value = try decode()
        } catch {
            throw .unusable(format, file: file, message: Self.message(of: error))
        }
        guard case .dictionary(let members) = value else {
            let outermost = format == .json ? "it is JSON, but not an object" : "its outermost element is not a <dict>"
            throw .unusable(format, file: file, message: outermost)
        }
        self.members = members
    }

    private static func message(of error: any Error) -> String {
        guard case DecodingError.dataCorrupted(let context) = error else { return "\(error)" }
        let place = (context.underlyingError as NSError?)?.userInfo[NSDebugDescriptionErrorKey] as? String
        return place ?? context.debugDescription
    }
}

extension ManagedConfigurationError {
    fileprivate static func unusable(
        _ format: ConfigurationFormat,
        file: String,
        message: String
    ) -> ManagedConfigurationError {
        ManagedConfigurationError(
            format == .json ? .invalidJSON : .invalidPropertyList,
            file: file,
            message: format == .json ? message : "not a property list: \(message)",
            remedy: format == .json
                ? "write a JSON object such as {\"sharedDeviceMode\": true}, or a property list"
                : "export the profile anew, or check it with: plutil -lint \(file)"
        )
    }

    fileprivate static func signed(file: String, encoding: String) -> ManagedConfigurationError {
        ManagedConfigurationError(
            .signed,
            file: file,
            message: "the profile is inside a signature, which is not taken off here",
            remedy: "unwrap it with: openssl smime -verify -noverify -inform \(encoding) -in \(file) "
                + "-out unsigned.mobileconfig"
        )
    }
}
