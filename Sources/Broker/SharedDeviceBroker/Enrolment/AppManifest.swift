import DBusTransport
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

extension ConfigurationReader {
    /// An identifier in reverse-DNS form, which must be there.
    func manifestIdentifier(_ key: String) throws(ManagedConfigurationError) -> String {
        guard let identifier = try text(key) else { throw missing(key, "such as org.example.orders") }
        guard AppIdentifier.isReverseDNS(identifier) else {
            throw invalid(
                key,
                "“\(identifier)” is not in reverse-DNS form",
                remedy:
                    "write letters, digits, - and _ in two or more parts with dots between, such as org.example.orders"
            )
        }
        return identifier
    }

    /// An absolute path, which must be there, without symbolic links where the file exists.
    func executable(_ key: String) throws(ManagedConfigurationError) -> String {
        guard let path = try text(key) else { throw missing(key, "the absolute path of the app's program") }
        guard path.hasPrefix("/"), !path.hasSuffix("/"), !path.utf8.contains(0) else {
            throw invalid(
                key,
                "“\(path)” is no absolute path of a file",
                remedy: "write it from / on, such as /usr/bin/orders"
            )
        }
        guard let resolved = realpath(path, nil) else { return path }
        defer { free(resolved) }
        return String(cString: resolved)
    }

    /// A user's name or number.
    func user(_ key: String) throws(ManagedConfigurationError) -> uid_t? {
        switch values[key] {
        case nil: return nil
        // The greatest number means no user at all.
        case .integer(let number)?:
            guard let user = uid_t(exactly: number), user != uid_t.max else {
                throw invalid(key, "\(number) is no user's number", remedy: "write the user's name")
            }
            return user
        case .string(let name)?:
            guard let user = SystemUser.identifier(ofUserNamed: name) else {
                throw invalid(
                    key,
                    "this system has no user “\(name)”",
                    remedy: "make the user and then write the manifest anew, or leave the key out for any user"
                )
            }
            return user
        default:
            throw .wrongType(
                file: file,
                key: key,
                remedy: "write a user's name as a string, or its number, or leave the key out"
            )
        }
    }

    /// A name that a program can own on a bus.
    func busName(_ key: String) throws(ManagedConfigurationError) -> String? {
        guard let name = try text(key) else { return nil }
        guard BusName.isWellKnown(name) else {
            throw invalid(
                key,
                "“\(name)” is no name that a program can own on a bus",
                remedy: "write the name of its service file, such as org.example.orders, or leave the key out"
            )
        }
        return name
    }

    /// Names for people, each once.
    func stores(_ key: String) throws(ManagedConfigurationError) -> [String] {
        let stores = try strings(key) ?? []
        var seen: Set<String> = []
        for store in stores {
            guard !store.allSatisfy(\.isWhitespace) else {
                throw invalid(key, "a name is empty", remedy: "write what the app keeps there, such as orders database")
            }
            guard seen.insert(store).inserted else {
                throw invalid(key, "“\(store)” is there twice", remedy: "name each store once")
            }
        }
        return stores
    }

    private func missing(_ key: String, _ wanted: String) -> ManagedConfigurationError {
        ManagedConfigurationError(
            .invalidValue,
            file: file,
            key: key,
            message: "the key is absent, and a manifest needs it",
            remedy: "write a string: \(wanted)"
        )
    }
}
