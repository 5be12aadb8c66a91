package import Foundation

/// What the administrator, or the management system for them, has set for this device. A JSON object with the keys
/// that the configuration profile of Microsoft Authenticator uses:
///
/// ```json
/// { "sharedDeviceMode": true, "organization": "Contoso" }
/// ```
package struct ManagedConfiguration: Sendable, Equatable {
    /// Whether the device is shared. `false` where the key is absent.
    package let sharedDeviceMode: Bool
    /// Whose device it is, for display.
    package let organization: String?
    /// Whether the next sign-in waits for the cleanup of the last session.
    package let cleanupPolicy: CleanupPolicy
    /// Keys in the file that mean nothing to this version, in alphabetical order: perhaps a misspelling.
    package let unknownKeys: [String]

    /// The mode that the device is to be in.
    package var mode: ManagedMode { sharedDeviceMode ? .shared : .personal }

    package init(
        sharedDeviceMode: Bool,
        organization: String? = nil,
        cleanupPolicy: CleanupPolicy = .advisory,
        unknownKeys: [String] = []
    ) {
        self.sharedDeviceMode = sharedDeviceMode
        self.organization = organization
        self.cleanupPolicy = cleanupPolicy
        self.unknownKeys = unknownKeys
    }

    /// The configuration that `json` says.
    ///
    /// - Parameter file: Where it comes from, for the error.
    /// - Throws: `ManagedConfigurationError`: `invalidJSON`, `wrongType`.
    package init(json: Data, file: String) throws(ManagedConfigurationError) {
        do {
            self = try JSONDecoder().decode(Content.self, from: json).configuration
        } catch let error as DecodingError {
            throw ManagedConfigurationError(error, file: file)
        } catch {
            throw .invalidJSON(file: file, message: "\(error)")
        }
    }
}

extension ManagedConfiguration {
    private struct Key: CodingKey {
        static let sharedDeviceMode = Key(stringValue: "sharedDeviceMode")
        static let organization = Key(stringValue: "organization")
        static let cleanupPolicy = Key(stringValue: "cleanupPolicy")
        static let cleanupTimeout = Key(stringValue: "cleanupTimeout")
        static let known = Set([sharedDeviceMode, organization, cleanupPolicy, cleanupTimeout].map(\.stringValue))

        let stringValue: String
        var intValue: Int? { nil }

        init(stringValue: String) { self.stringValue = stringValue }
        init?(intValue: Int) { nil }
    }

    private struct Content: Decodable {
        let configuration: ManagedConfiguration

        init(from decoder: any Decoder) throws {
            let container = try decoder.container(keyedBy: Key.self)
            // Not decodeIfPresent, which takes null for absent: who writes null meant something else.
            let isShared =
                container.contains(.sharedDeviceMode)
                ? try container.decode(Bool.self, forKey: .sharedDeviceMode) : false
            let organization =
                container.contains(.organization) ? try container.decode(String.self, forKey: .organization) : nil
            let policy =
                container.contains(.cleanupPolicy) ? try container.decode(String.self, forKey: .cleanupPolicy) : nil
            let timeout =
                container.contains(.cleanupTimeout) ? try container.decode(Double.self, forKey: .cleanupTimeout) : nil
            configuration = ManagedConfiguration(
                sharedDeviceMode: isShared,
                organization: organization,
                cleanupPolicy: CleanupPolicy(
                    isStrict: policy == "strict",
                    timeout: timeout.map { .seconds($0) }
                ),
                unknownKeys: container.allKeys.map(\.stringValue).filter { !Key.known.contains($0) }.sorted()
            )
        }
    }
}

extension ManagedConfigurationError {
    fileprivate init(_ error: DecodingError, file: String) {
        switch error {
        case .typeMismatch(let type, let context), .valueNotFound(let type, let context):
            guard let key = context.codingPath.last?.stringValue else {
                self = .invalidJSON(file: file, message: "it is JSON, but not an object")
                return
            }
            let wanted = type == Bool.self ? "true or false, without quotation marks" : "a string"
            self.init(
                .wrongType,
                file: file,
                key: key,
                message: "the value is of the wrong type",
                remedy: "write \(wanted), or leave the key out"
            )
        case .dataCorrupted(let context), .keyNotFound(_, let context):
            let place = (context.underlyingError as NSError?)?.userInfo[NSDebugDescriptionErrorKey] as? String
            self = .invalidJSON(file: file, message: place ?? context.debugDescription)
        @unknown default:
            self = .invalidJSON(file: file, message: "\(error)")
        }
    }

    fileprivate static func invalidJSON(file: String, message: String) -> ManagedConfigurationError {
        ManagedConfigurationError(
            .invalidJSON,
            file: file,
            message: message,
            remedy:
                "write an object such as {\"sharedDeviceMode\": true}; until then the last valid configuration holds"
        )
    }
}
