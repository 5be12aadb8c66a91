extension ManagedConfiguration {
    /// What a key means for this device, in a sentence: with the value that it has, or, where it is absent, without one.
    package func meaning(of key: Key) -> String {
        switch key {
        case .sharedDeviceMode:
            mode == .shared
                ? "At most one account is signed in on this device, for all of its apps."
                : "The device is one person's: nobody is signed in through it, and the other keys wait."
        case .organization:
            organization.map { "People are told that the device belongs to \($0)." }
                ?? "Nobody is told whose device it is."
        case .tenantIdentifier:
            tenantIdentifier.map { "Only users of the tenant \($0) sign in." } ?? "Users of every tenant sign in."
        case .cleanupPolicy: meaningOfCleanupPolicy
        case .cleanupTimeout: meaningOfCleanupTimeout
        case .requiresEnrolment: meaningOfRequiresEnrolment
        case .requiresJoin:
            requiresJoin
                ? "Nobody signs in before an administrator has joined the device to its organization: shared-device join."
                : "People sign in whether or not the device is joined to an organization."
        case .inactivityTimeout:
            inactivityTimeout.map { "The user is signed out after \($0.text) without anybody at the device." }
                ?? "Nobody is signed out for being away."
        case .shiftEnds:
            shiftEnds.isEmpty
                ? "Nobody is signed out at a time of day."
                : "The user is signed out at \(Self.list(shiftEnds.map(\.text))) each day, in local time."
        case .signOutOnScreenLock:
            signOutOnScreenLock
                ? "The user is signed out when the screen is locked." : "A locked screen signs nobody out."
        case .signOutOnLogout:
            signOutOnLogout
                ? "The user is signed out when the desktop session ends."
                : "The end of the desktop session signs nobody out."
        case .endSessionURL:
            endSessionURL == nil
                ? "A sign-out leaves sessions in a browser alone."
                : "An app's sign-out opens this page, which ends the identity provider's session in the browser."
        case .enableSSOOnAllManagedApps:
            enableSSOOnAllManagedApps.isOn
                ? "Each app with a manifest takes part, unless AppBlockList has it."
                : "An app that was not made for shared device mode is not let in by its manifest alone."
        case .appAllowList:
            appAllowList == nil
                ? "No app is let in by its identifier."
                : "These apps take part although they were not made for shared device mode."
        case .appBlockList:
            appBlockList == nil
                ? "No app is kept out by its identifier."
                : "These apps do not take part, unless a manifest says that they were made for shared device mode."
        case .appPrefixAllowList:
            appPrefixAllowList == nil
                ? "No app is let in by the beginning of its identifier."
                : "Apps with these beginnings take part although they were not made for shared device mode."
        }
    }

    private var meaningOfCleanupPolicy: String {
        cleanup.isStrict
            ? "An app gets the next account when it has deleted the data of those before, and the next sign-in waits for all apps."
            : "Apps are told to delete the data of those before, and are reminded; they get the next account meanwhile."
    }

    private var meaningOfCleanupTimeout: String {
        switch cleanup.longestWait {
        case nil: "The next sign-in waits for the apps as long as it takes."
        case .zero?: "The next sign-in waits for no app."
        case _?: "The next sign-in waits for the apps for \(cleanupTimeout?.text ?? "") at most."
        }
    }

    private var meaningOfRequiresEnrolment: String {
        switch requiresEnrolment {
        case true?: "Only apps with a manifest take part."
        case false?: "Apps without a manifest take part, too."
        case nil where cleanup.isStrict: "Only apps with a manifest take part, because the cleanup policy is strict."
        case nil: "On the system bus only apps with a manifest take part; on a session bus others do, too."
        }
    }

    private static func list(_ words: [String]) -> String {
        guard let last = words.last, words.count > 1 else { return words.first ?? "" }
        return words.dropLast().joined(separator: ", ") + " and " + last
    }
}

extension Seconds {
    /// As people write it: 1 second, 2.5 seconds.
    fileprivate var text: String {
        let number = Int(exactly: value).map { "\($0)" } ?? "\(value)"
        return number == "1" ? "1 second" : "\(number) seconds"
    }
}
