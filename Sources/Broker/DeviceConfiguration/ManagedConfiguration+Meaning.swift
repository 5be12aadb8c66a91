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
            case .embedded: "People sign in by a password that the device's own directory knows."
            case .oidc: "People sign in with the organisation's own provider, on its page; the device sees no password."
            case .loginSession:
                "The user whom logind reports at the machine's seat is signed in; a logout there is the sign-out."
            }
        case .passwordSignIn:
            switch identity {
            case .embedded where passwordSignIn == true:
                "An app may take people's passwords, and hand them over to sign in."
            case .embedded: "People type their passwords into the device's own page alone; no app may hand one over."
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
        case .cleanupPolicy: meaningOfCleanupPolicy
        case .cleanupTimeout: meaningOfCleanupTimeout
        case .requiresEnrolment: meaningOfRequiresEnrolment
        case .requiresJoin:
            requiresJoin
                ? "Users can sign in after an administrator has joined the device to its organisation: shared-device join."
                : "People sign in whether or not the device is joined to an organisation."
        case .inactivityTimeout:
            inactivityTimeout.map { "The user is signed out after \($0.text) without activity at the device." }
                ?? "Inactivity does not sign the user out."
        case .shiftEnds:
            shiftEnds.isEmpty
                ? "The user is not signed out at a set time of day."
                : "The user is signed out at \(Self.list(shiftEnds.map(\.text))) each day, in local time."
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
        case .operators:
            operators.names.isEmpty
                ? "Only administrators see the device and sign others out."
                : "\(Self.list(operators.names)) may see the device and sign out, and change nothing else."
        }
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

extension Seconds {
    /// As people write it: 1 second, 2.5 seconds.
    var text: String {
        let number = Int(exactly: value).map { "\($0)" } ?? "\(value)"
        return number == "1" ? "1 second" : "\(number) seconds"
    }
}
