import DBusTransport
package import Foundation
import Glibc

/// What an administrator, or an app's package, says of one app on this device: a JSON file in the directory of manifests.
///
/// ```json
/// { "id": "org.example.orders", "executable": "/usr/bin/orders", "user": "orders", "stores": ["orders database"] }
/// ```
///
/// An app with a manifest is enrolled: the broker knows it before it has ever run. The manifest says by what it is known; ``AppCredentials``
/// has what each kind is worth.
package struct AppManifest: Sendable, Equatable {
    /// By what the app's processes are known. All that is there has to fit.
    package struct Identity: Sendable, Equatable, CustomStringConvertible {
        /// The program that runs as the app: an absolute path, without symbolic links where the file exists.
        package var executable: String?
        /// The user that the app runs as; `nil` means any.
        package var user: uid_t?
        /// The unit of the system's service manager that the app is.
        package var unit: String?
        /// The AppArmor profile that confines it; a snap's is `snap.NAME.APP`.
        package var appArmor: String?
        /// The Flatpak's id.
        package var flatpak: String?

        package init(
            executable: String? = nil,
            user: uid_t? = nil,
            unit: String? = nil,
            appArmor: String? = nil,
            flatpak: String? = nil
        ) {
            self.executable = executable
            self.user = user
            self.unit = unit
            self.appArmor = appArmor
            self.flatpak = flatpak
        }

        /// For people: what the manifest says of it.
        package var description: String {
            let parts = [
                executable, unit.map { "unit \($0)" }, appArmor.map { "AppArmor profile \($0)" },
                flatpak.map { "Flatpak \($0)" }, user.map { "uid \($0)" } ?? "any user",
            ]
            return parts.compactMap { $0 }.joined(separator: "  ")
        }

        /// Whether another user's process cannot pass for the app.
        package var isProof: Bool { user != nil || unit != nil || appArmor != nil }
    }

    /// Which app it is, in reverse-DNS form.
    package let identifier: String
    package let identity: Identity
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
        identity: Identity,
        busName: String? = nil,
        stores: [String] = [],
        supportsSharedDeviceMode: Bool = true,
        unknownKeys: [String] = []
    ) {
        self.identifier = identifier
        self.identity = identity
        self.busName = busName
        self.stores = stores
        self.supportsSharedDeviceMode = supportsSharedDeviceMode
        self.unknownKeys = unknownKeys
    }

    /// What keeps these credentials from being the app's, as the key of the manifest that does not fit; `nil` if they are.
    package func mismatch(_ credentials: AppCredentials) -> String? {
        // A Flatpak's processes run programs of the sandbox's own file system, whatever their paths.
        if identity.flatpak != credentials.flatpak { return Key.flatpak.rawValue }
        if let executable = identity.executable, !executable.utf8.elementsEqual(credentials.executable.utf8) {
            return Key.executable.rawValue
        }
        if let unit = identity.unit, unit != credentials.unit { return Key.unit.rawValue }
        if let profile = identity.appArmor, profile != credentials.enforcedProfile { return Key.appArmor.rawValue }
        if let user = identity.user, user != credentials.user { return Key.user.rawValue }
        return nil
    }

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
        case unit
        case appArmor
        case snap
        case flatpak
        case busName
        case stores
        case sharedDeviceModeSupported
    }

    private init(_ reader: ConfigurationReader) throws(ManagedConfigurationError) {
        let snap = try reader.name(Key.snap.rawValue)
        let profile = try reader.name(Key.appArmor.rawValue)
        let identity = Identity(
            executable: try reader.executable(Key.executable.rawValue),
            user: try reader.user(Key.user.rawValue),
            unit: try reader.name(Key.unit.rawValue),
            appArmor: snap.map { "snap.\($0)" } ?? profile,
            flatpak: try reader.name(Key.flatpak.rawValue)
        )
        guard identity.executable != nil || identity.unit != nil || identity.appArmor != nil || identity.flatpak != nil
        else { throw reader.missing(Key.executable.rawValue, "the absolute path of the app's program") }
        self.init(
            identifier: try reader.manifestIdentifier(Key.id.rawValue),
            identity: identity,
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

    /// A unit, a profile or a Flatpak's id: one word.
    func name(_ key: String) throws(ManagedConfigurationError) -> String? {
        guard let name = try text(key) else { return nil }
        guard AppIdentifier.isPlausible(name) else {
            throw invalid(
                key,
                "“\(name)” is no name",
                remedy: "write one word of printable ASCII, or leave the key out"
            )
        }
        return name
    }

    /// An absolute path, without symbolic links where the file exists.
    func executable(_ key: String) throws(ManagedConfigurationError) -> String? {
        guard let path = try text(key) else { return nil }
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

    func missing(_ key: String, _ wanted: String) -> ManagedConfigurationError {
        ManagedConfigurationError(
            .invalidValue,
            file: file,
            key: key,
            message: "the key is absent, and a manifest needs it",
            remedy: "write a string: \(wanted)"
        )
    }
}
