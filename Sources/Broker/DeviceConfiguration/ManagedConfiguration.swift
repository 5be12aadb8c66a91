public import FoundationEssentials

/// The settings of this device by the administrator or a management system. The properties are the keys of the file.
///
/// The keys that begin with a capital are those of Microsoft's SSO plug-in, with the names and types that they have on
/// iOS. `shared-device configuration convert` converts a profile for iOS.
public struct ManagedConfiguration: Sendable, Equatable {
    /// Whether the device is shared; an absent key means that it is not.
    public var sharedDeviceMode: Bool?
    /// The owner of the device, for display.
    public var organization: String?
    /// The tenant whose users may sign in; `nil` means any tenant.
    public var tenantIdentifier: String?
    /// The people who may sign in; `nil` means all.
    public var allowedUsers: AllowedUsers?
    public var identity = IdentitySource.embedded
    /// The organisation's provider. Present if, and only if, ``identity`` is `oidc`.
    public var organisation: OrganisationSettings?
    /// Whether apps may submit passwords that people typed into them; `nil` means no. Only for the own directory.
    public var passwordSignIn: Bool?
    /// Whether Microsoft's clients on Linux find the device's account.
    public var microsoftBroker = false
    /// Whether a sign-out ends the login session at the seat.
    public var endsLoginSession = false
    public var cleanupPolicy = CleanupPolicy.Kind.advisory
    public var cleanupTimeout: Seconds?
    /// Whether only apps with a manifest take part. `nil` means yes if sign-ins wait for cleanups, which unknown apps
    /// must not delay, and if more than one user reaches the broker's bus.
    public var requiresEnrolment: Bool?
    /// Whether the device must have joined the organization before users may sign in.
    public var requiresJoin = false
    /// How long the device may be unused; more than zero.
    public var inactivityTimeout: Seconds?
    /// What happens when the device was unused for that long.
    public var inactivityAction = InactivityAction.signOut
    /// How long a session may stay locked; more than zero.
    public var lockedTime = Self.usualLockedTime
    /// The local times at which the device signs its user out each day.
    public var shiftEnds: [TimeOfDay] = []
    /// How long a session may last, even if the device is in use; more than zero.
    public var longestSession: Seconds?
    /// How long before the end of a session apps are told; zero means never.
    public var signOutWarning = Self.usualWarning
    public var signOutOnScreenLock = false
    public var signOutOnLogout = false
    /// The identity provider's page that ends its session in a browser.
    public var endSessionURL: WebAddress?
    public var appLists = AppLists()
    /// The users, besides administrators, who may see the device and sign out.
    public var operators = Operators()

    /// Keys in the file that this version does not know, in alphabetical order.
    public var unknownKeys: [String] = []
    /// Keys in the file about a provider that the device does not have, in alphabetical order.
    public var idleKeys: [String] = []

    public init() {}

    /// Time enough to save a form, and short enough that people do not learn to ignore it.
    public static let usualWarning = Seconds(60)

    /// Time enough for a break, and short enough that a forgotten session does not wait until the end of the day.
    public static let usualLockedTime = Seconds(900)

    /// The names of all keys, in display order.
    public static let keyNames = Key.allCases.map(\.rawValue) + OrganisationSettings.Key.allCases.map(\.rawValue)

    public var mode: ManagedMode { sharedDeviceMode == true ? .shared : .personal }
    /// Whether sessions can be locked. Another identity has no credentials that a locked screen could take.
    public var locksSessions: Bool { inactivityAction == .lock && identity == .embedded }
    public var cleanup: CleanupPolicy { CleanupPolicy(cleanupPolicy, timeout: cleanupTimeout?.duration) }

    /// Probable mistakes, one per line. The configuration is valid.
    public var warnings: [KeyWarning] {
        var warnings = KeyWarning.unknown(unknownKeys, among: Self.keyNames)
        func warn(_ key: Key, _ message: String) { warnings.append(KeyWarning(key: key.rawValue, message: message)) }
        if sharedDeviceMode == nil { warn(.sharedDeviceMode, "is absent: the device is personal") }
        warnings += idleKeys.map { KeyWarning(key: $0, message: "has no effect: \"identity\" is not \"oidc\"") }
        if passwordSignIn == true, identity != .embedded {
            warn(.passwordSignIn, "has no effect: under \"identity\": \"\(identity.rawValue)\" there are no passwords")
        }
        if inactivityAction == .lock, identity != .embedded {
            let reason = "only under \"identity\": \"embedded\" people come back at a lock"
            warn(.inactivityAction, "is lock, and the user is signed out: \(reason)")
        } else if inactivityAction == .lock, inactivityTimeout == nil {
            let reason = "inactivityTimeout is absent"
            warn(.inactivityAction, "is lock, and a session is locked only when the broker starts: \(reason)")
        }
        if !locksSessions, lockedTime != Self.usualLockedTime {
            warn(.lockedTime, "has no effect: no session is locked")
        }
        if let text = inactivityTimeout?.text, inactivityTimeout?.value ?? 0 <= 10 {
            warn(.inactivityTimeout, "is \(text), and reports of input are seconds apart; write well above 10")
        }
        warnings += [allowedUsers?.warning(identity)].compactMap(\.self)
        if microsoftBroker, identity != .oidc {
            warn(.microsoftBroker, "is true, and Microsoft's clients get no token: they need those of a provider")
        }
        for identifier in Set(appLists.allowed ?? []).intersection(appLists.blocked).sorted() {
            warn(.appBlockList, "has \(identifier), as AppAllowList has: it is blocked")
        }
        if cleanupPolicy == .enforced, requiresEnrolment == false {
            warn(.requiresEnrolment, "is false, and has no effect: without a manifest no cleanup can be enforced")
        }
        for name in operators.unknown {
            warn(.operators, "names “\(name)”, whom this system does not know; a group is written %GROUP")
        }
        return warnings
    }
}

extension ManagedConfiguration: Codable {
    /// The keys as they are written, in display order.
    public enum Key: String, CodingKey, CaseIterable, Sendable {
        case sharedDeviceMode, organization, identity, passwordSignIn, microsoftBroker, endsLoginSession
        case tenantIdentifier, allowedUsers, cleanupPolicy, cleanupTimeout, requiresEnrolment, requiresJoin
        case inactivityTimeout, inactivityAction, lockedTime, shiftEnds, longestSession, signOutWarning
        case signOutOnScreenLock, signOutOnLogout, endSessionURL
        case enableSSOOnAllManagedApps = "Enable_SSO_On_All_ManagedApps"
        case appAllowList = "AppAllowList"
        case appBlockList = "AppBlockList"
        case appPrefixAllowList = "AppPrefixAllowList"
        case operators
    }

    public typealias CodingKeys = Key

    public init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: Key.self)
        sharedDeviceMode = try values.optional(.sharedDeviceMode)
        organization = try values.optional(.organization)
        tenantIdentifier = try values.text(.tenantIdentifier, "is empty", remedy: "leave the key out") {
            !$0.allSatisfy(\.isWhitespace)
        }
        allowedUsers = try values.optional(.allowedUsers)
        identity = try values.word(.identity) ?? .embedded
        passwordSignIn = try values.optional(.passwordSignIn)
        microsoftBroker = try values.optional(.microsoftBroker) ?? false
        endsLoginSession = try values.optional(.endsLoginSession) ?? false
        cleanupPolicy = try values.word(.cleanupPolicy) ?? .advisory
        cleanupTimeout = try values.optional(.cleanupTimeout)
        requiresEnrolment = try values.optional(.requiresEnrolment)
        requiresJoin = try values.optional(.requiresJoin) ?? false
        inactivityTimeout = try Self.limit(.inactivityTimeout, in: values)
        inactivityAction = try values.word(.inactivityAction) ?? .signOut
        lockedTime = try Self.limit(.lockedTime, in: values) ?? Self.usualLockedTime
        shiftEnds = try values.optional(.shiftEnds) ?? []
        longestSession = try Self.limit(.longestSession, in: values)
        signOutWarning = try values.optional(.signOutWarning) ?? Self.usualWarning
        signOutOnScreenLock = try values.optional(.signOutOnScreenLock) ?? false
        signOutOnLogout = try values.optional(.signOutOnLogout) ?? false
        endSessionURL = try values.optional(.endSessionURL)
        let isForAll: Switch? = try values.optional(.enableSSOOnAllManagedApps)
        appLists.allowsAllManagedApps = isForAll?.isOn == true
        appLists.allowed = try values.identifiers(.appAllowList)
        appLists.blocked = try values.identifiers(.appBlockList) ?? []
        appLists.allowedPrefixes = try values.identifiers(.appPrefixAllowList)
        operators = try values.optional(.operators) ?? Operators()
        unknownKeys = try decoder.keys { !Self.keyNames.contains($0) }
        // Everyone on the device may read the file.
        if let key = unknownKeys.first(where: { $0.lowercased().hasSuffix("secret") }) {
            throw DecodingError.invalid(
                "a secret must not be in a file that users may read",
                remedy:
                    "remove the key, and give the secret to the service as the systemd credential oidc-client-secret",
                at: [AnyKey(key)]
            )
        }
        if identity == .oidc {
            organisation = try OrganisationSettings(from: decoder)
        } else {
            idleKeys = try decoder.keys { OrganisationSettings.Key(rawValue: $0) != nil }
        }
    }

    /// Reads a time after which a session ends. It must not be zero, because no session could begin.
    private static func limit(_ key: Key, in values: KeyedDecodingContainer<Key>) throws -> Seconds? {
        let limit: Seconds? = try values.optional(key)
        guard limit?.value != 0 else {
            throw DecodingError.invalid("it is 0 seconds", remedy: "write more than 0, or leave the key out", at: [key])
        }
        return limit
    }

    public func encode(to encoder: any Encoder) throws {
        var values = encoder.container(keyedBy: Key.self)
        try values.encodeIfPresent(sharedDeviceMode, forKey: .sharedDeviceMode)
        try values.encodeIfPresent(organization, forKey: .organization)
        try values.encode(identity, forKey: .identity)
        try values.encodeIfPresent(passwordSignIn, forKey: .passwordSignIn)
        try values.encode(microsoftBroker, forKey: .microsoftBroker)
        try values.encode(endsLoginSession, forKey: .endsLoginSession)
        try values.encodeIfPresent(tenantIdentifier, forKey: .tenantIdentifier)
        try values.encodeIfPresent(allowedUsers, forKey: .allowedUsers)
        try values.encode(cleanupPolicy, forKey: .cleanupPolicy)
        try values.encodeIfPresent(cleanupTimeout, forKey: .cleanupTimeout)
        try values.encodeIfPresent(requiresEnrolment, forKey: .requiresEnrolment)
        try values.encode(requiresJoin, forKey: .requiresJoin)
        try values.encodeIfPresent(inactivityTimeout, forKey: .inactivityTimeout)
        try values.encode(inactivityAction, forKey: .inactivityAction)
        try values.encode(lockedTime, forKey: .lockedTime)
        try values.encode(shiftEnds, forKey: .shiftEnds)
        try values.encodeIfPresent(longestSession, forKey: .longestSession)
        try values.encode(signOutWarning, forKey: .signOutWarning)
        try values.encode(signOutOnScreenLock, forKey: .signOutOnScreenLock)
        try values.encode(signOutOnLogout, forKey: .signOutOnLogout)
        try values.encodeIfPresent(endSessionURL, forKey: .endSessionURL)
        try values.encode(appLists.allowsAllManagedApps ? 1 : 0, forKey: .enableSSOOnAllManagedApps)
        try values.encodeIfPresent(appLists.allowed?.joined(separator: ", "), forKey: .appAllowList)
        let blocked = appLists.blocked.isEmpty ? nil : appLists.blocked.joined(separator: ", ")
        try values.encodeIfPresent(blocked, forKey: .appBlockList)
        try values.encodeIfPresent(appLists.allowedPrefixes?.joined(separator: ", "), forKey: .appPrefixAllowList)
        try values.encode(operators, forKey: .operators)
        try organisation?.encode(to: encoder)
    }

    /// Reads the content of the file at this path.
    public init(json: Data, file: String) throws(ManagedConfigurationError) {
        if ProfileForm(json) != nil {
            let remedy = "run: shared-device configuration convert \(file)"
            throw .init(.profile, file, "it is an Apple profile or property list", remedy: remedy)
        }
        let example = #"{"sharedDeviceMode": true} in a configuration"#
        self = try AdministratorFile.decode(Self.self, from: json, file: file, example: example)
        // Otherwise the device would be personal although a nested key may say otherwise.
        for key in unknownKeys where key == "ExtensionData" || key == "PayloadContent" {
            let remedy = "write them at the same level as the other keys"
            throw .init(.profile, file, key: key, "keys are not read inside it", remedy: remedy)
        }
    }

}

/// What happens after a time of inactivity. The raw values are in files.
public enum InactivityAction: String, Sendable, Codable, CaseIterable {
    case signOut
    /// The session stays open, and its person has to authenticate before the screen shows it again.
    case lock
}

/// How the configuration manages this device. The broker always knows the mode; for a client it may be unknown.
public enum ManagedMode: String, Sendable, Codable {
    /// Many people, one at a time: at most one account is signed in, for every app.
    case shared
    /// One person's device: the broker signs no user in.
    case personal
}

/// The condition for the next sign-in after a sign-out.
public struct CleanupPolicy: Sendable, Equatable {
    /// The names in the file.
    public enum Kind: String, Sendable, Codable, CaseIterable {
        /// The next sign-in does not wait; the ledger records the pending cleanups.
        case advisory
        /// The next sign-in waits until the apps have deleted the data of earlier sessions.
        case strict
        /// As `strict`. In addition, an app without a receipt at the deadline is stopped, and its data deleted.
        case enforced
    }

    public var kind: Kind
    /// `cleanupTimeout`, if it is set.
    public var timeout: Duration?

    /// The deadline of an enforced policy without a timeout.
    public static let usualDeadline = Duration.seconds(60)

    public init(_ kind: Kind = .advisory, timeout: Duration? = nil) { (self.kind, self.timeout) = (kind, timeout) }

    /// Whether an app that owes a cleanup receives neither account nor token.
    public var isStrict: Bool { kind != .advisory }
    /// The longest wait of the next sign-in; `nil` means until the data is deleted.
    public var longestWait: Duration? {
        switch kind {
        case .advisory: timeout ?? .zero
        case .strict: timeout
        case .enforced: nil
        }
    }
    /// How long after a session its round expires and no longer delays a sign-in; `nil` means never.
    public var expiry: Duration? { kind == .enforced ? nil : timeout }
    /// How long after a session an app without a receipt is stopped and its data deleted; `nil` means never.
    public var deadline: Duration? { kind == .enforced ? timeout ?? Self.usualDeadline : nil }

    public static let advisory = CleanupPolicy()
    public static let strict = CleanupPolicy(.strict)
}

/// The SSO plug-in's lists of apps that take part although they were not made for shared device mode.
///
/// Identifiers are compared byte by byte. ``AppEligibility`` defines how the lists work together.
public struct AppLists: Sendable, Equatable {
    /// Exact identifiers that take part: `AppAllowList`. `nil` if the key is absent.
    public var allowed: [String]?
    /// Exact identifiers that do not take part: `AppBlockList`.
    public var blocked: [String]
    /// Prefixes of identifiers that take part: `AppPrefixAllowList`. `nil` if the key is absent.
    public var allowedPrefixes: [String]?
    /// Whether all enrolled apps take part: `Enable_SSO_On_All_ManagedApps`.
    public var allowsAllManagedApps: Bool

    public init(
        allowed: [String]? = nil,
        blocked: [String] = [],
        allowedPrefixes: [String]? = nil,
        allowsAllManagedApps: Bool = false
    ) {
        (self.allowed, self.blocked) = (allowed, blocked)
        (self.allowedPrefixes, self.allowsAllManagedApps) = (allowedPrefixes, allowsAllManagedApps)
    }

    /// Whether a list of admitted apps excludes all other apps.
    public var isExclusive: Bool { allowed != nil || allowedPrefixes != nil }
}

extension ManagedConfiguration {
    /// Every key that applies to this device, with its meaning, in display order.
    public var meanings: [(key: String, meaning: String)] {
        let device = Key.allCases.map { ($0.rawValue, meaning(of: $0)) }
        guard let organisation else { return device }
        return device + OrganisationSettings.Key.allCases.map { ($0.rawValue, organisation.meaning(of: $0)) }
    }

    /// The meaning of a key for this device in a sentence, with its value or, if it is absent, the default.
    public func meaning(of key: Key) -> String {
        switch key {
        case .sharedDeviceMode:
            mode == .shared
                ? "At most one account is signed in on this device, for all of its apps."
                : "The device is personal: it has no account, and the other keys have no effect."
        case .organization:
            organization.map { "People are told that the device belongs to \($0)." }
                ?? "People are not told which organisation the device belongs to."
        case .identity:
            switch identity {
            case .embedded: "People sign in by a password, or a badge and a PIN, that the device's own directory knows."
            case .oidc: "People sign in with the organisation's own provider, on its page; the device sees no password."
            case .loginSession:
                "The user whom logind reports at the machine's seat is signed in; a logout there is the sign-out."
            }
        case .passwordSignIn:
            switch identity {
            case .embedded where passwordSignIn == true:
                "An app may take people's passwords, badges and PINs, and hand them over to sign in."
            case .embedded:
                "Only shared-device-sign-in and shared-device-screen take passwords, badges and PINs; no app may hand one over."
            case .oidc, .loginSession: "No app takes a password: the device has none."
            }
        case .microsoftBroker:
            microsoftBroker
                ? "Microsoft's clients find the device's account as com.microsoft.identity.broker1 on the session bus."
                : "Microsoft's clients do not find the device's account."
        case .endsLoginSession:
            endsLoginSession
                ? "A sign-out ends the login session at the seat, when all receipts are there or 10 seconds are over."
                : "A sign-out leaves the login session at the seat alone."
        case .tenantIdentifier:
            tenantIdentifier.map { "Only users of the tenant \($0) sign in." } ?? "Users of every tenant sign in."
        case .allowedUsers:
            allowedUsers == nil
                ? "No user is kept from signing in by name or group."
                : "Only these users, and users in these groups, sign in."
        case .cleanupPolicy: meaningOfCleanupPolicy
        case .cleanupTimeout: meaningOfCleanupTimeout
        case .requiresEnrolment: meaningOfRequiresEnrolment
        case .requiresJoin:
            requiresJoin
                ? "Users can sign in after an administrator has joined the device to its organisation: shared-device join."
                : "People sign in whether or not the device is joined to an organisation."
        case .inactivityTimeout:
            inactivityTimeout.map {
                "The \(locksSessions ? "session is locked" : "user is signed out") after \($0.text) "
                    + "without activity at the device."
            } ?? "Inactivity does not sign the user out."
        case .inactivityAction:
            switch (locksSessions, inactivityTimeout) {
            case (true, _?): "Inactivity locks the screen; without shared-device-screen, it signs the user out."
            case (true, nil): "An open session is locked when the broker starts, and by nothing else."
            case (false, _?): "Inactivity signs the user out."
            case (false, nil): "Inactivity has no effect."
            }
        case .lockedTime:
            locksSessions
                ? "The user is signed out \(lockedTime.text) after the screen was locked." : "No screen is locked."
        case .shiftEnds:
            shiftEnds.isEmpty
                ? "The user is not signed out at a set time of day."
                : "The user is signed out at \(Self.list(shiftEnds.map(\.text))) each day, in local time."
        case .longestSession:
            longestSession.map { "The user is signed out \($0.text) after the sign-in, even if the device is in use." }
                ?? "A session may last as long as the device is in use."
        case .signOutWarning:
            signOutWarning.value == 0
                ? "Apps are not told before a session ends by itself."
                : "Apps are told \(signOutWarning.text) before a session ends by itself\(shorterWarnings), "
                    + "to warn the user."
        case .signOutOnScreenLock:
            signOutOnScreenLock
                ? "The user is signed out when the screen is locked." : "A locked screen does not sign the user out."
        case .signOutOnLogout:
            signOutOnLogout
                ? "The user is signed out when the desktop session ends."
                : "The end of the desktop session does not sign the user out."
        case .endSessionURL:
            endSessionURL == nil
                ? "A sign-out leaves sessions in a browser alone."
                : "An app's sign-out opens this page, which ends the identity provider's session in the browser."
        case .enableSSOOnAllManagedApps:
            appLists.allowsAllManagedApps
                ? "Each app with a manifest takes part, unless AppBlockList has it."
                : "An app that was not made for shared device mode is not let in by its manifest alone."
        case .appAllowList:
            appLists.allowed == nil
                ? "No app is let in by its identifier."
                : "These apps take part although they were not made for shared device mode."
        case .appBlockList:
            appLists.blocked.isEmpty
                ? "No app is kept out by its identifier."
                : "These apps do not take part, unless a manifest says that they were made for shared device mode."
        case .appPrefixAllowList:
            appLists.allowedPrefixes == nil
                ? "No app is let in by the beginning of its identifier."
                : "Apps with these beginnings take part although they were not made for shared device mode."
        case .operators:
            operators.names.isEmpty
                ? "Only administrators see the device and sign others out."
                : "\(Self.list(operators.names)) may see the device and sign out, and change nothing else."
        }
    }

    /// The warnings that a limit shortens to half of it, in brackets.
    private var shorterWarnings: String {
        let limits: [(Key, Seconds?)] = [(.inactivityTimeout, inactivityTimeout), (.longestSession, longestSession)]
        let times = limits.compactMap { key, limit -> String? in
            guard let half = limit.map({ $0.value / 2 }), half < signOutWarning.value else { return nil }
            return "\(Seconds(half).text) by \(key.rawValue)"
        }
        return times.isEmpty ? "" : " (\(Self.list(times)))"
    }

    private var meaningOfCleanupPolicy: String {
        switch cleanupPolicy {
        case .advisory:
            "Apps are told to delete the data of earlier users, and are reminded. They get the next account without a wait."
        case .strict:
            "An app gets the next account when it has deleted the data of earlier users. The next sign-in waits for all apps."
        case .enforced:
            "The next sign-in waits for all apps. A late app is stopped, and its data deleted. Only apps whose manifest says how take part."
        }
    }

    private var meaningOfCleanupTimeout: String {
        if let deadline = cleanup.deadline {
            let time = Seconds(deadline / .seconds(1)).text
            return "An app has \(time) after a session before it is stopped and its data deleted."
        }
        return switch cleanup.longestWait {
        case nil: "The next sign-in waits for the apps without a time limit."
        case .zero?: "The next sign-in waits for no app."
        case _?: "The next sign-in waits for the apps for \(cleanupTimeout?.text ?? "") at most."
        }
    }

    private var meaningOfRequiresEnrolment: String {
        switch requiresEnrolment {
        case _ where cleanupPolicy == .enforced:
            "Only apps with a manifest take part, because the cleanup policy is enforced."
        case true?: "Only apps with a manifest take part."
        case false?: "Apps without a manifest take part, too."
        case nil where cleanup.isStrict: "Only apps with a manifest take part, because the cleanup policy is strict."
        case nil: "On the system bus only apps with a manifest take part; on a session bus others do, too."
        }
    }

    static func list(_ words: [String]) -> String {
        guard let last = words.last, words.count > 1 else { return words.first ?? "" }
        return words.dropLast().joined(separator: ", ") + " and " + last
    }
}
