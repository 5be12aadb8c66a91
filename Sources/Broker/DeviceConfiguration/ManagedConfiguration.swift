package import FoundationEssentials

/// What the administrator, or a management system for them, has set for this device: the properties are the keys of the file.
///
/// The keys in capitals are those of Microsoft's SSO plug-in, with the names and types that they have on iOS. A profile for iOS is converted by
/// `shared-device configuration convert`.
package struct ManagedConfiguration: Sendable, Equatable {
    /// Whether the device is shared; absent means that it is not.
    package var sharedDeviceMode: Bool?
    /// Whose device it is, for display.
    package var organization: String?
    /// The tenant whose users may sign in; `nil` means any tenant.
    package var tenantIdentifier: String?
    package var cleanupPolicy = CleanupPolicy.Kind.advisory
    package var cleanupTimeout: Seconds?
    /// Whether only apps with a manifest take part; `nil` means: where the cleanup policy is strict, because nobody waits for an app that
    /// nobody knows, and where more than one user reaches the broker's bus.
    package var requiresEnrolment: Bool?
    /// Whether the device must have been joined to the organization before anybody may sign in.
    package var requiresJoin = false
    /// How long the device may be unused; more than zero.
    package var inactivityTimeout: Seconds?
    /// The device signs its user out at these local times each day.
    package var shiftEnds: [TimeOfDay] = []
    package var signOutOnScreenLock = false
    package var signOutOnLogout = false
    /// The identity provider's page that ends its session in a browser.
    package var endSessionURL: WebAddress?
    package var enableSSOOnAllManagedApps = Switch(isOn: false)
    package var appAllowList: AppList?
    package var appBlockList: AppList?
    package var appPrefixAllowList: AppList?

    /// Keys in the file that mean nothing to this version, in alphabetical order.
    package var unknownKeys: [String] = []

    package init() {}

    /// The mode that the device is to be in.
    package var mode: ManagedMode { sharedDeviceMode == true ? .shared : .personal }
    package var cleanup: CleanupPolicy {
        CleanupPolicy(isStrict: cleanupPolicy == .strict, timeout: cleanupTimeout?.duration)
    }
    package var appLists: AppLists {
        AppLists(
            allowed: appAllowList?.identifiers,
            blocked: appBlockList?.identifiers ?? [],
            allowedPrefixes: appPrefixAllowList?.identifiers,
            allowsAllManagedApps: enableSSOOnAllManagedApps.isOn
        )
    }

    /// What is probably a mistake, a line each. The configuration is valid.
    package var warnings: [KeyWarning] {
        var warnings = KeyWarning.unknown(unknownKeys, among: Key.allCases.map(\.rawValue))
        if sharedDeviceMode == nil {
            warnings.append(
                KeyWarning(key: Key.sharedDeviceMode.rawValue, message: "is absent: the device is personal")
            )
        }
        for identifier in Set(appLists.allowed ?? []).intersection(appLists.blocked).sorted() {
            let message = "has \(identifier), as AppAllowList has: it is blocked"
            warnings.append(KeyWarning(key: Key.appBlockList.rawValue, message: message))
        }
        return warnings
    }
}

extension ManagedConfiguration: Codable {
    /// The keys as they are written, in the order in which people are shown them.
    package enum Key: String, CodingKey, CaseIterable {
        case sharedDeviceMode, organization, tenantIdentifier, cleanupPolicy, cleanupTimeout, requiresEnrolment,
            requiresJoin
        case inactivityTimeout, shiftEnds, signOutOnScreenLock, signOutOnLogout, endSessionURL
        case enableSSOOnAllManagedApps = "Enable_SSO_On_All_ManagedApps"
        case appAllowList = "AppAllowList"
        case appBlockList = "AppBlockList"
        case appPrefixAllowList = "AppPrefixAllowList"
    }

    package typealias CodingKeys = Key

    package init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: Key.self)
        sharedDeviceMode = try values.optional(.sharedDeviceMode)
        organization = try values.optional(.organization)
        tenantIdentifier = try values.text(
            .tenantIdentifier,
            "is empty",
            remedy: "leave the key out",
            where: { !$0.allSatisfy(\.isWhitespace) }
        )
        cleanupPolicy = try values.optional(.cleanupPolicy) ?? .advisory
        cleanupTimeout = try values.optional(.cleanupTimeout)
        requiresEnrolment = try values.optional(.requiresEnrolment)
        requiresJoin = try values.optional(.requiresJoin) ?? false
        inactivityTimeout = try values.optional(.inactivityTimeout)
        if inactivityTimeout?.value == 0 {
            throw DecodingError.invalid(
                "it is 0 seconds",
                remedy: "write more than 0, or leave the key out",
                at: [Key.inactivityTimeout]
            )
        }
        shiftEnds = try values.optional(.shiftEnds) ?? []
        signOutOnScreenLock = try values.optional(.signOutOnScreenLock) ?? false
        signOutOnLogout = try values.optional(.signOutOnLogout) ?? false
        endSessionURL = try values.optional(.endSessionURL)
        enableSSOOnAllManagedApps = try values.optional(.enableSSOOnAllManagedApps) ?? Switch(isOn: false)
        appAllowList = try values.optional(.appAllowList)
        appBlockList = try values.optional(.appBlockList)
        appPrefixAllowList = try values.optional(.appPrefixAllowList)
        unknownKeys = try decoder.unknownKeys(beside: Key.self)
    }

    /// Reads a file's content.
    ///
    /// - Parameter file: where it comes from, for the error.
    /// - Throws: ``ManagedConfigurationError``: `invalidJSON`, `profile`, `wrongType`, `invalidValue`.
    package init(json: Data, file: String) throws(ManagedConfigurationError) {
        if Self.isProfile(json) {
            throw .profile(file, "it is an Apple profile or property list", remedy: "run: \(Self.converter) \(file)")
        }
        self = try AdministratorFile.decode(Self.self, from: json, file: file)
        // The device would be personal although one of them says otherwise.
        for key in unknownKeys where key == "ExtensionData" || key == "PayloadContent" {
            throw .profile(file, key: key, "keys are not read inside it", remedy: "write them beside the other keys")
        }
    }

    private static let converter = "shared-device configuration convert"

    /// Whether it looks like a property list in XML or binary form, or like a signature around one (CMS).
    private static func isProfile(_ content: Data) -> Bool {
        var bytes = content[...]
        if bytes.starts(with: [0xEF, 0xBB, 0xBF]) { bytes = bytes.dropFirst(3) }
        bytes = bytes.drop { [0x20, 0x09, 0x0A, 0x0D].contains($0) }
        return ["<", "bplist", "-----BEGIN "].contains { bytes.starts(with: $0.utf8) }
            || bytes.starts(with: [0x30]) && bytes.dropFirst().first.map { $0 >= 0x80 } == true
    }
}

/// How this device is managed, by its configuration. The broker always knows; a client may also find it unknown.
package enum ManagedMode: String, Sendable, Codable {
    /// Many people, one at a time: at most one account is signed in, for every app.
    case shared
    /// One person's device: the broker signs nobody in.
    case personal
}

/// What the next sign-in waits for after somebody has signed out.
package struct CleanupPolicy: Sendable, Equatable {
    /// The names in the file.
    package enum Kind: String, Sendable, Codable {
        case advisory, strict

        package init(from decoder: any Decoder) throws {
            let text = try decoder.singleValueContainer().decode(String.self)
            guard let kind = Kind(rawValue: text) else {
                throw DecodingError.invalid(
                    "it is “\(text)”",
                    remedy: "write advisory or strict, or leave the key out",
                    at: decoder.codingPath
                )
            }
            self = kind
        }
    }

    /// Whether the next sign-in waits until the apps have deleted the data of those before.
    ///
    /// Otherwise the policy is advisory: apps are told and reminded, and nobody waits for them.
    package var isStrict: Bool
    /// How long the next sign-in waits at most, if that is set.
    package var timeout: Duration?

    package init(isStrict: Bool = false, timeout: Duration? = nil) {
        self.isStrict = isStrict
        self.timeout = timeout
    }

    /// How long the next sign-in waits at most; `nil` means without limit. Without a `timeout`, a strict policy waits until
    /// all apps are done, and an advisory policy does not wait.
    package var longestWait: Duration? { timeout ?? (isStrict ? nil : .zero) }

    /// Nobody waits; the ledger records what apps owe.
    package static let advisory = CleanupPolicy()
    /// The next sign-in waits until all is done.
    package static let strict = CleanupPolicy(isStrict: true)
}

/// The SSO plug-in's lists of apps that take part although they were not made for shared device mode.
///
/// Identifiers are compared byte by byte. ``AppEligibility`` says what the lists mean together.
package struct AppLists: Sendable, Equatable {
    /// Exact identifiers that take part: `AppAllowList`. `nil` where the key is absent.
    package var allowed: [String]?
    /// Exact identifiers that do not: `AppBlockList`.
    package var blocked: [String]
    /// Beginnings of identifiers that take part: `AppPrefixAllowList`. `nil` where the key is absent.
    package var allowedPrefixes: [String]?
    /// Whether all enrolled apps take part: `Enable_SSO_On_All_ManagedApps`.
    package var allowsAllManagedApps: Bool

    package init(
        allowed: [String]? = nil,
        blocked: [String] = [],
        allowedPrefixes: [String]? = nil,
        allowsAllManagedApps: Bool = false
    ) {
        self.allowed = allowed
        self.blocked = blocked
        self.allowedPrefixes = allowedPrefixes
        self.allowsAllManagedApps = allowsAllManagedApps
    }

    /// Whether there is a list of those that take part, so that the others do not.
    package var isExclusive: Bool { allowed != nil || allowedPrefixes != nil }
}
