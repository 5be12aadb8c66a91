import Basics
package import DeviceConfiguration
@_spi(Extensions) import SharedDevice

/// Decides which apps take part in shared device mode. Pure: it uses only the configuration and the manifests.
///
/// The rules, in this order:
///
/// 1. A caller that claims an identifier with a manifest must be the manifest's program, run by the manifest's user if
/// it names one. A caller that claims no identifier, and is the program of exactly one manifest, is that app.
/// 2. An enrolled app that was made for shared device mode takes part. No list affects it, as on iOS no list affects an
/// MSAL app.
/// 3. Of the other apps, those on the block list do not take part.
/// 4. If enrolment is required, apps without a manifest do not take part.
/// 5. Apps take part if they are on the allow list, or if their identifiers begin with one of its prefixes.
/// 6. With `Enable_SSO_On_All_ManagedApps`, all enrolled apps take part.
/// 7. The remaining apps take part, unless enrolment is required, or there is an allow list or a prefix list.
///
/// Under an enforced cleanup policy, only apps whose manifest has `cleanup` take part: for other apps the enforcement
/// program would not know what to stop and delete. The prompt, the screen program and the reporter of input need no
/// `cleanup`, because they receive neither account nor token.
///
/// A process in a sandbox that does not name its Flatpak does not take part.
///
/// If more than one user reaches the bus, a manifest counts only if it names something that another user cannot forge:
/// a user, a unit or an AppArmor profile.
package struct AppEligibility: Sendable {
    package typealias Decision = Result<AppIdentity, Refusal>

    private let lists: AppLists
    private let requiresEnrolment: Bool
    private let manifests: [AppManifest]
    /// The manifests by identifier.
    private let known: [String: AppManifest]
    private let requiresProof: Bool
    private let requiresCleanup: Bool

    /// - Parameters:
    ///   - manifests: If two have the same identifier, the first counts.
    ///   - requiresProof: Whether more than one user reaches the bus.
    ///   - requiresCleanup: Whether only apps with an enforceable cleanup take part.
    package init(
        lists: AppLists = AppLists(),
        requiresEnrolment: Bool = false,
        manifests: [AppManifest] = [],
        requiresProof: Bool = false,
        requiresCleanup: Bool = false
    ) {
        (self.lists, self.manifests, self.requiresEnrolment) = (lists, manifests, requiresEnrolment)
        (self.requiresProof, self.requiresCleanup) = (requiresProof, requiresCleanup)
        known = Dictionary(manifests.map { ($0.identifier, $0) }) { first, _ in first }
    }

    /// Combinations of lists and manifests that are probably mistakes, one per line.
    package var warnings: [String] {
        Set(lists.blocked).sorted().filter { manifest(of: $0)?.supportsSharedDeviceMode == true }.map { identifier in
            "AppBlockList has \(identifier), which takes part because it was made for shared device mode; "
                + "remove its manifest to keep it out"
        }
            + manifests.filter { requiresCleanup && $0.cleanup == nil && !$0.holdsNothing }.map { manifest in
                "\(manifest.identifier) takes no part under the enforced cleanup policy: its manifest does not say what to delete; "
                    + "add \(Self.cleanupExample) and \"user\" to it"
            }
            + manifests.filter { !requiresEnrolment && $0.allowedUsers != nil }.map { manifest in
                "\(manifest.identifier) has allowedUsers in its manifest, and can take part under another name for all users; "
                    + "set requiresEnrolment to true"
            }
    }

    /// Decides whether this caller takes part, and as which app, whose identifier it may claim.
    package func decide(_ credentials: AppCredentials, claiming claimed: String?) -> Decision {
        Result { () throws(Refusal) -> AppIdentity in
            let app = try identity(of: credentials, claiming: claimed)
            try checkSandbox(credentials, claimed)
            try checkCleanup(app, claimed)
            if app.manifest?.supportsSharedDeviceMode != true {
                try checkLists(app.manifest?.identifier ?? claimed, app, credentials)
            }
            return app
        }
    }

    /// The manifests of adapters that take part, each with the user whose data it deletes.
    package var adapters: [AppManifest] {
        manifests.filter { manifest in
            guard let user = manifest.adapter?.user.number, isTrusted(manifest) else { return false }
            if manifest.supportsSharedDeviceMode { return true }
            let app = AppIdentity(identifier: manifest.identifier, manifest: manifest)
            let credentials = AppCredentials(user: user, executable: "")
            return (try? checkLists(manifest.identifier, app, credentials)) != nil
        }
    }

    /// The app of this caller, whether or not it takes part; `nil` if it is unknown.
    func identityOfRefused(_ credentials: AppCredentials, claiming claimed: String?) -> AppIdentity? {
        if let claimed, !AppIdentifier.isPlausible(claimed) { return nil }
        let known = try? identity(of: credentials, claiming: claimed)
        return known ?? AppIdentity(identifier: Self.key(credentials, claimed))
    }

    /// The keys that an enrolled app may have had before it got its manifest, except keys that another program may
    /// still have.
    func formerKeys(of app: AppIdentity, _ credentials: AppCredentials) -> [String] {
        guard app.isEnrolled else { return [] }
        return [app.identifier, nil]
            .filter { identityOfRefused(credentials, claiming: $0)?.identifier == app.identifier }
            .map { Self.key(credentials, $0) }
    }

    func manifest(of identifier: String) -> AppManifest? { known[identifier] }

    /// The app of a caller. Without a manifest, each program and user is a separate app.
    private func identity(of credentials: AppCredentials, claiming claimed: String?) throws(Refusal) -> AppIdentity {
        let manifest: AppManifest?
        if let claimed {
            manifest = try enrolled(claimed, credentials)
        } else {
            let candidates = manifests.filter { $0.mismatch(credentials) == nil && isTrusted($0) }
            manifest = candidates.count == 1 ? candidates.first : nil
        }
        return AppIdentity(identifier: manifest?.identifier ?? Self.key(credentials, claimed), manifest: manifest)
    }

    /// The manifest of this identifier, which has to match the caller; `nil` if there is none.
    private func enrolled(_ identifier: String, _ credentials: AppCredentials) throws(Refusal) -> AppManifest? {
        let program = credentials.executable
        guard AppIdentifier.isPlausible(identifier) else {
            throw .appNotEligible("\(program) gives an invalid app identifier; use one such as org.example.orders")
        }
        guard let manifest = manifest(of: identifier) else { return nil }
        guard isTrusted(manifest) else {
            throw .appNotEligible(
                "the manifest of \(identifier) names nothing that another user cannot forge; add \"user\" to it, or "
                    + "\"unit\" or \"appArmor\""
            )
        }
        let mismatch: String
        switch manifest.mismatch(credentials) {
        case nil: return manifest
        case .user?:
            mismatch =
                "is not run by the user that its manifest names, but by user \(credentials.user); run it as that user, or "
                + "correct \"user\" in the manifest"
        case .executable?:
            mismatch =
                "is not the program that its manifest names, \(manifest.identity.executable ?? ""); if it is the app, "
                + "correct \"executable\" in the manifest"
        case .flatpak?:
            try checkSandbox(credentials, identifier)
            let sandbox = credentials.flatpak.map { "in the sandbox of the Flatpak \($0.printable(200))" }
            mismatch =
                "runs \(sandbox ?? "in no Flatpak's sandbox"); its manifest says \(manifest.identity); if it is the app, "
                + "correct \"flatpak\" in the manifest"
        case .unit? where manifest.isKnownByAdapter: throw Self.notTheAdapter(manifest, credentials)
        case let key?:
            mismatch =
                "its process does not fit \"\(key.rawValue)\" of the manifest; if it is the app, correct that key"
        }
        throw .appNotEligible("\(program) says that it is \(identifier), and \(mismatch)")
    }

    /// A refusal for an adapter, whose manifest may lack the key that does not match.
    private static func notTheAdapter(_ manifest: AppManifest, _ credentials: AppCredentials) -> Refusal {
        let unit = AppCleanup.unit(of: manifest.identifier)
        let flaw =
            credentials.unit == unit
            ? "not root's, but user \(credentials.user)'s; let the adapter alone say so, and run its unit as root"
            : "not in \(unit); start it with: systemctl start \(unit.dropLast(".service".count))"
        return .appNotEligible(
            "\(credentials.executable) says that it is \(manifest.identifier), which is known by its adapter's unit, "
                + "and this process is \(flaw)"
        )
    }

    private func checkSandbox(_ credentials: AppCredentials, _ claimed: String?) throws(Refusal) {
        guard case .unreadable(let reason) = credentials.sandbox else { return }
        throw .appNotEligible(
            "\(claimed?.printable(200) ?? "the app") is in a sandbox whose /.flatpak-info does not say of which Flatpak it "
                + "is: \(reason); give the broker CAP_DAC_READ_SEARCH, as its unit does; Flatpak writes the file when the "
                + "app starts"
        )
    }

    private func checkCleanup(_ app: AppIdentity, _ claimed: String?) throws(Refusal) {
        guard requiresCleanup, app.manifest?.cleanup == nil, app.manifest?.holdsNothing != true else { return }
        throw .appNotEligible(
            "\(app.manifest?.identifier ?? claimed?.printable(200) ?? "the app") has no manifest that says what to stop and "
                + "to delete, and the cleanup policy is enforced; add \(Self.cleanupExample) and \"user\" to its manifest"
        )
    }

    private static let cleanupExample = #""cleanup": {"by": "app", "delete": ["/what/it/keeps"]}"#

    private func isTrusted(_ manifest: AppManifest) -> Bool { !requiresProof || manifest.identity.isProof }

    /// The rules for apps without a manifest, or not made for shared device mode.
    private func checkLists(_ identifier: String?, _ app: AppIdentity, _ credentials: AppCredentials) throws(Refusal) {
        if let identifier, lists.blocked.contains(identifier) {
            throw .appNotEligible("\(app.identifier) is blocked; take it out of AppBlockList to let it take part")
        }
        guard app.isEnrolled || !requiresEnrolment else {
            // The screen program needs its manifest under each setting.
            let isScreen = identifier == BrokerProtocol.screenIdentifier
            throw .appNotEligible(
                "\(app.identifier) has no manifest; \(Self.enrolment(identifier, credentials))"
                    + (isScreen ? "" : ", or set requiresEnrolment to false")
            )
        }
        if let identifier {
            if lists.allowed?.contains(identifier) == true { return }
            if lists.allowedPrefixes?.contains(where: { identifier.hasPrefix($0) }) == true { return }
        }
        if app.isEnrolled, lists.allowsAllManagedApps { return }
        guard !requiresEnrolment, !lists.isExclusive else {
            throw .appNotEligible(
                "\(app.identifier) is on no list of apps that take part; add it to AppAllowList, or "
                    + (app.isEnrolled
                        ? "set Enable_SSO_On_All_ManagedApps to 1" : Self.enrolment(identifier, credentials))
            )
        }
    }

    /// Tells how to give an app a manifest: the command, the file and its content.
    private static func enrolment(_ identifier: String?, _ credentials: AppCredentials) -> String {
        let name = identifier ?? "ID"
        let program = credentials.flatpak ?? credentials.executable.printable(500)
        let key = credentials.flatpak == nil ? AppManifest.Key.executable : .flatpak
        let file = "\(AppManifestDirectory.defaultPath)/\(name).json (or in apps, next to the broker's configuration)"
        // People paste the command into a shell, so path and name must be plain.
        let isPlain = [program, name].allSatisfy { text in
            text.utf8.allSatisfy {
                UInt8(ascii: "a")...UInt8(ascii: "z") ~= $0 | 0x20 || "0123456789/._+-".utf8.contains($0)
            }
        }
        let command =
            credentials.flatpak == nil && isPlain
            ? "run: shared-device apps enrol \(program) --id \(name), which writes" : "write"
        return "\(command) \(file): {\"id\": \"\(name)\", \"\(key.rawValue)\": \"\(program)\"}"
    }

    /// The key of a caller without a manifest. It contains a blank, so it never equals a manifest's identifier.
    private static func key(_ credentials: AppCredentials, _ claimed: String?) -> String {
        // A path may contain anything, even line breaks.
        let program =
            switch credentials.sandbox {
            case .absent: credentials.executable.printable(500)
            case .flatpak(let id): "Flatpak \(id)".printable(500)
            case .unreadable: "unknown Flatpak"
            }
        return claimed.map { "\($0) (\(program), uid \(credentials.user))" } ?? "\(program) (uid \(credentials.user))"
    }
}

extension AppManifest {
    /// Whether it is the prompt that comes with the broker.
    var isPrompt: Bool { identifier == BrokerProtocol.promptIdentifier }

    /// Whether it is the screen program of this project.
    var isScreen: Bool { identifier == BrokerProtocol.screenIdentifier }

    /// Whether it is a program of this project that receives neither account nor token.
    var holdsNothing: Bool { isPrompt || isScreen || identifier == BrokerProtocol.activityIdentifier }

    /// Whether the app is known only by the unit of its adapter.
    fileprivate var isKnownByAdapter: Bool { adapter != nil && identity.unit == AppCleanup.unit(of: identifier) }

    /// The key of the manifest that does not match these credentials; `nil` if they match.
    package func mismatch(_ credentials: AppCredentials) -> Key? {
        // The paths of a Flatpak's programs refer to the file system of the sandbox.
        if case .unreadable = credentials.sandbox { return .flatpak }
        if identity.flatpak != credentials.flatpak { return .flatpak }
        if let executable = identity.executable, !executable.utf8.elementsEqual(credentials.executable.utf8) {
            return .executable
        }
        if let unit = identity.unit, unit != credentials.unit { return .unit }
        if let profile = identity.appArmor, profile != credentials.enforcedProfile { return .appArmor }
        // The adapter's unit also contains the app's command, which runs as the app's user and must not pass for the
        // adapter.
        if isKnownByAdapter, credentials.user != 0 { return .unit }
        // An adapter that stops units runs as root. Other adapters run as the app's own user.
        if let user = identity.user, user != credentials.user, adapter == nil || credentials.user != 0 { return .user }
        return nil
    }
}
