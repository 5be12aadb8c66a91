package import Foundation
import Glibc

/// What an administrator, or an app's package, says of one app on this device: a JSON file in the directory of manifests.
///
/// ```json
/// { "id": "org.example.orders", "executable": "/usr/bin/orders", "user": "orders", "stores": ["orders database"] }
/// ```
///
/// An app with a manifest is enrolled: the broker knows it before it has ever run.
package struct AppManifest: Sendable, Equatable {
    /// Which app it is, in reverse-DNS form.
    package let identifier: String
    /// The program that runs as the app: an absolute path, without symbolic links where the file exists.
    package let executable: String
    /// The user that the app runs as; `nil`: any.
    package let user: uid_t?
    /// The name on the bus that starts the app when it is called, if it has one.
    package let busName: String?
    /// The places where the app keeps data of its users, named for people. In the manifest's order, each once.
    package let stores: [String]
    /// Whether the app was made for shared device mode.
    package let supportsSharedDeviceMode: Bool
    /// Keys in the file that mean nothing to this version, in alphabetical order.
    package let unknownKeys: [String]

    package init(
        identifier: String,
        executable: String,
        user: uid_t? = nil,
        busName: String? = nil,
        stores: [String] = [],
        supportsSharedDeviceMode: Bool = true,
        unknownKeys: [String] = []
    ) {
        self.identifier = identifier
        self.executable = executable
        self.user = user
        self.busName = busName
        self.stores = stores
        self.supportsSharedDeviceMode = supportsSharedDeviceMode
        self.unknownKeys = unknownKeys
    }

    /// Whether that program, run by that user, is the app.
    ///
    /// - Parameter executable: As the kernel says it: absolute, without symbolic links.
    package func names(executable: String, user: uid_t) -> Bool {
        isProgram(executable) && (self.user ?? user) == user
    }

    /// Whether the path is the manifest's, byte by byte: to the kernel no two spellings are one.
    package func isProgram(_ executable: String) -> Bool { executable.utf8.elementsEqual(self.executable.utf8) }

    /// Reads a manifest. Asks the system for the user and the executable's path, and so may block.
    ///
    /// - Parameter file: Where it comes from, for the error.
    /// - Throws: `ManagedConfigurationError`: `invalidJSON`, `wrongType`, `invalidValue`.
    package init(json: Data, file: String) throws(ManagedConfigurationError) {
        let content = try ConfigurationContent(json: json, file: file)
        try self.init(ConfigurationReader(file: file, format: .json, values: content.members))
    }

    private enum Key: String, CaseIterable {
        case id
        case executable
        case user
        case busName
        case stores
        case sharedDeviceModeSupported
    }

    private init(_ reader: ConfigurationReader) throws(ManagedConfigurationError) {
        self.init(
            identifier: try reader.manifestIdentifier(Key.id.rawValue),
            executable: try reader.executable(Key.executable.rawValue),
            user: try reader.user(Key.user.rawValue),
            busName: try reader.busName(Key.busName.rawValue),
            stores: try reader.stores(Key.stores.rawValue),
            supportsSharedDeviceMode: try reader.boolean(Key.sharedDeviceModeSupported.rawValue) ?? true,
            unknownKeys: reader.values.keys.filter { Key(rawValue: $0) == nil }.sorted()
        )
    }

    /// The key that an unknown one is probably meant to be, if one is close.
    package static func suggestion(forUnknownKey key: String) -> String? {
        KeySuggestion.nearest(to: key, among: Key.allCases.map(\.rawValue))
    }
}
