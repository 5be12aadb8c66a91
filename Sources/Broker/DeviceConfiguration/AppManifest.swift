import DBus
public import FoundationEssentials
public import Glibc

/// The description of an app on this device, by an administrator or the app's package: a JSON file in the directory of
/// manifests.
///
/// ```json
/// { "id": "org.example.orders", "executable": "/usr/bin/orders", "user": "orders", "stores": ["orders database"] }
/// ```
///
/// An app with a manifest is enrolled: the broker knows it before it has ever run. The manifest says how to identify
/// the app; ``AppCredentials`` describes how reliable each kind of identity is.
public struct AppManifest: Sendable, Equatable {
    /// The criteria that identify the app's processes. All present criteria have to match.
    public struct Identity: Sendable, Equatable, CustomStringConvertible {
        /// The program that runs as the app: an absolute path, without symbolic links if the file exists.
        public var executable: String?
        /// The user that the app runs as; `nil` means any.
        public var user: uid_t?
        /// The app's unit of the system's service manager.
        public var unit: String?
        /// The AppArmor profile that confines the app; a snap's is `snap.NAME.APP`.
        public var appArmor: String?
        public var flatpak: String?

        public init(
            executable: String? = nil,
            user: uid_t? = nil,
            unit: String? = nil,
            appArmor: String? = nil,
            flatpak: String? = nil
        ) {
            (self.executable, self.user, self.unit) = (executable, user, unit)
            (self.appArmor, self.flatpak) = (appArmor, flatpak)
        }

        /// For people: the criteria, and whether each is proof or a hint.
        public var description: String {
            let hints = [executable, flatpak.map { "Flatpak \($0)" }].compactMap { $0 }.map { "\($0) (hint)" }
            let proofs = [
                unit.map { "unit \($0)" }, appArmor.map { "AppArmor profile \($0)" }, user.map { "uid \($0)" },
            ].compactMap { $0 }.map { "\($0) (proof)" }
            return (hints + proofs + (user == nil ? ["any user"] : [])).joined(separator: "  ")
        }

        /// The criterion that distinguishes the app from other programs of its user.
        var program: String? { executable ?? unit ?? appArmor ?? flatpak }

        /// Whether another user's process cannot pass for the app.
        public var isProof: Bool { user != nil || unit != nil || appArmor != nil }
    }

    /// The app's identifier, in reverse-DNS form.
    public let identifier: String
    public let identity: Identity
    /// The name on the bus that starts the app when it is called, if it has one.
    public let busName: String?
    /// The places where the app keeps data of its users, in the manifest's order, without duplicates.
    public let stores: [String]
    /// Whether the app was made for shared device mode.
    public let supportsSharedDeviceMode: Bool
    /// How to stop the app and delete its data; `nil` if only the app itself can clean up.
    public let cleanup: AppCleanup?
    /// The tokens that the app may request.
    public let tokens: TokenRights
    /// The people who may use the app; `nil` means all. For any other person, the app sees no account.
    public let allowedUsers: AllowedUsers?
    /// Keys in the file that this version does not know, in alphabetical order.
    public let unknownKeys: [String]

    public init(
        identifier: String,
        identity: Identity,
        busName: String? = nil,
        stores: [String] = [],
        supportsSharedDeviceMode: Bool = true,
        cleanup: AppCleanup? = nil,
        tokens: TokenRights = TokenRights(),
        allowedUsers: AllowedUsers? = nil,
        unknownKeys: [String] = []
    ) {
        self.identifier = identifier
        self.identity = identity
        self.busName = busName
        self.stores = stores
        (self.supportsSharedDeviceMode, self.cleanup) = (supportsSharedDeviceMode, cleanup)
        (self.tokens, self.allowedUsers, self.unknownKeys) = (tokens, allowedUsers, unknownKeys)
    }

    /// The cleanup by an adapter; `nil` for an app that cleans up by itself.
    public var adapter: AppCleanup? { cleanup.flatMap { $0.cleaner == .adapter ? $0 : nil } }

    public var warnings: [KeyWarning] { KeyWarning.unknown(unknownKeys, among: Self.keyNames) }
}

extension AppManifest: Decodable {
    public enum Key: String, CodingKey, CaseIterable, Sendable {
        case id, executable, user, unit, appArmor, snap, flatpak, busName, stores, sharedDeviceModeSupported
        case allowedUsers, cleanup
    }

    /// The names of all keys.
    public static let keyNames = Key.allCases.map(\.rawValue) + TokenRights.Key.allCases.map(\.rawValue)

    /// Reads a manifest of this path. May block, because it asks the system for the user and the executable.
    public init(json: Data, file: String) throws(ManagedConfigurationError) {
        let example = #"{"id": "org.example.orders", …} in a manifest"#
        self = try AdministratorFile.decode(Self.self, from: json, file: file, example: example)
    }

    public init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: Key.self)
        identifier = try values.required(
            .id,
            try values.text(
                .id,
                "is not in reverse-DNS form",
                remedy:
                    "write letters, digits, - and _ in two or more parts with dots between, such as org.example.orders",
                where: AppIdentifier.isReverseDNS
            ),
            "such as org.example.orders"
        )
        let path = try values.text(
            .executable,
            "is no absolute path of a file",
            remedy: "write the whole path, such as /usr/bin/orders",
            where: { $0.hasPrefix("/") && !$0.hasSuffix("/") && !$0.utf8.contains(0) }
        )
        let profile = try values.name(.appArmor)
        let snap = try values.name(.snap).map { "snap.\($0)" }
        guard profile == nil || snap == nil || profile == snap else {
            let message = "it is not the profile of the snap that the manifest names"
            throw DecodingError.invalid(message, remedy: "leave out one of the two keys", at: [Key.appArmor])
        }
        let user: SystemUser? = try values.optional(.user)
        var identity = Identity(
            executable: path.map(pathWithoutLinks),
            user: user?.number,
            unit: try values.name(.unit),
            appArmor: snap ?? profile,
            flatpak: try values.name(.flatpak)
        )
        let written: WrittenCleanup? = try values.optional(.cleanup)
        do throws(ValueFlaw) {
            cleanup = try written.map { written throws(ValueFlaw) in
                try AppCleanup(written, identity: identity, user: user)
            }
        } catch {
            throw DecodingError.invalid(error.message, remedy: error.remedy, at: [Key.cleanup])
        }
        if cleanup?.cleaner == .adapter, identity.program == nil { identity.unit = AppCleanup.unit(of: identifier) }
        self.identity = identity
        _ = try values.required(.executable, identity.program, "the absolute path of the app's program")
        busName = try values.text(
            .busName,
            "is no name that a program can own on a bus",
            remedy: "write the name of its service file, such as org.example.orders, or leave the key out",
            where: BusName.isWellKnown
        )
        stores = try values.optional(.stores) ?? []
        if stores.contains(where: { $0.allSatisfy(\.isWhitespace) }) {
            let remedy = "write what the app keeps there, such as orders database"
            throw DecodingError.invalid("a name is empty", remedy: remedy, at: [Key.stores])
        }
        guard Set(stores).count == stores.count else {
            throw DecodingError.invalid("a name is there twice", remedy: "name each store once", at: [Key.stores])
        }
        supportsSharedDeviceMode = try values.optional(.sharedDeviceModeSupported) ?? true
        tokens = try TokenRights(from: decoder)
        allowedUsers = try values.optional(.allowedUsers)
        unknownKeys = try decoder.keys { !Self.keyNames.contains($0) }
    }
}

/// The path with symbolic links resolved, or the same path if it does not exist.
public func pathWithoutLinks(_ path: String) -> String {
    guard let resolved = realpath(path, nil) else { return path }
    defer { free(resolved) }
    return String(cString: resolved)
}

extension KeyedDecodingContainer {
    /// A unit, a profile or a Flatpak's id: one word.
    fileprivate func name(_ key: Key) throws -> String? {
        let remedy = "write one word of printable ASCII, or leave the key out"
        return try text(key, "is no name", remedy: remedy, where: AppIdentifier.isPlausible)
    }

    fileprivate func required(_ key: Key, _ value: String?, _ wanted: String) throws -> String {
        guard let value else {
            let message = "the key is absent, and a manifest needs it"
            throw DecodingError.invalid(message, remedy: "write a string: \(wanted)", at: [key])
        }
        return value
    }
}

public enum AppIdentifier {
    /// The maximum length in bytes, as for names on a bus.
    public static let maximumLength = 255

    /// Whether the identifier has two or more parts, separated by dots, each of letters, digits, `-` and `_`.
    public static func isReverseDNS(_ identifier: String) -> Bool {
        let parts = identifier.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        return identifier.utf8.count <= maximumLength && parts.count >= 2
            && parts.allSatisfy { part in
                !part.isEmpty
                    && part.map(UnicodeScalar.init).allSatisfy { scalar in
                        switch scalar {
                        case "a"..."z", "A"..."Z", "0"..."9", "-", "_": true
                        default: false
                        }
                    }
            }
    }

    /// Whether a program may claim this identifier: printable ASCII without blanks, one word in every log.
    public static func isPlausible(_ identifier: String) -> Bool {
        (1...maximumLength).contains(identifier.utf8.count) && identifier.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F }
    }
}
