import BrokerCore
import DeviceConfiguration
import Foundation
@_spi(Extensions) import SharedDevice

/// The apps, users and configurations of the simulation. There are few of each, so that they interact often.
enum Setting {
    enum File: Hashable {
        case valid(Int)
        case broken, missing
    }

    static let homes = [
        Participant(app: "org.example.mail", user: 1000), Participant(app: "org.example.mail", user: 1001),
        Participant(app: "org.example.notes", user: 1000),
    ]

    /// Two processes of one app and user, the same app of another user, another app, and a hostile program.
    static let slots = [
        slot(0), slot(0), slot(1), slot(2),
        World.Slot(home: nil, user: 6666, executable: "/tmp/evil", name: "org.example.mail"),
    ]
    static let apps = 0..<4
    static let hostile = 4

    private static func slot(_ home: Int) -> World.Slot {
        let participant = homes[home]
        let (app, user) = (participant.app, participant.user)
        return World.Slot(home: home, user: user, executable: executable(app), name: app)
    }

    private static func executable(_ app: String) -> String { "/usr/bin/\(app)" }

    /// The bus can start the mail app but not the notes app.
    private static let hinted = makeManifests(areProven: false)
    private static let proven = makeManifests(areProven: true)

    /// - Parameter areProven: whether the apps are identified by facts that other users cannot forge.
    static func manifests(areProven: Bool) -> [AppManifest] { areProven ? proven : hinted }

    private static func makeManifests(areProven: Bool) -> [AppManifest] {
        func manifest(_ app: String, busName: String? = nil, allowed: AllowedUsers? = nil) -> AppManifest {
            let identity = AppManifest.Identity(executable: executable(app), appArmor: areProven ? app : nil)
            return AppManifest(
                identifier: app,
                identity: identity,
                busName: busName,
                tokens: tokens,
                allowedUsers: allowed
            )
        }
        let prompter = AppManifest.Identity(executable: prompt.path, user: areProven ? prompt.user : nil)
        return [
            manifest("org.example.mail", busName: "org.example.mail"),
            manifest("org.example.notes", allowed: AllowedUsers(users: [people[0]])),
            AppManifest(identifier: BrokerProtocol.promptIdentifier, identity: prompter),
            AppManifest(
                identifier: BrokerProtocol.screenIdentifier,
                identity: AppManifest.Identity(executable: screenPath, user: areProven ? prompt.user : nil)
            ),
        ]
    }

    private static let tokens = {
        var rights = TokenRights()
        rights.scopes = ["s"]
        return rights
    }()

    /// The program that prompts for sign-in on behalf of the apps.
    static let prompt = (path: "/usr/bin/shared-device-sign-in", user: UInt32(1000))

    static let screenPath = "/usr/bin/shared-device-screen"

    /// The same apps with the manifests that an enforced cleanup policy needs, run by the first user.
    static let enforcedManifests = ["org.example.mail", "org.example.notes"].map { app in
        let text = """
            {"id": "\(app)", "executable": "\(executable(app))", "user": \(enforcedUser), "busName": "\(app)",
                "cleanup": {"by": "app", "delete": ["/var/lib/\(app)"]}}
            """
        // The text is valid: it is written above.
        return try! AppManifest(json: Data(text.utf8), file: app)
    }

    /// The last person belongs to another organisation.
    static let people = ["ada@contoso", "grace@contoso", "mallory@evil"]
    /// A character that appears in each password, so that the oracle detects a password in any output.
    static let mark = "¤"
    static let rightPassword = "right\(mark)"
    static let wrongPassword = "wrong\(mark)"

    static func account(_ person: String) -> Account {
        let tenant = person.hasSuffix("@evil") ? "evil" : "contoso"
        return Account(identifier: "\(person.prefix { $0 != "@" }).\(tenant)", username: person)
    }

    static let configurations = [
        configuration(.strict),
        configuration(.strict) { $0.cleanupTimeout = Seconds(60) },
        configuration(.advisory) {
            $0.allowedUsers = AllowedUsers(users: [people[0]])
            $0.inactivityTimeout = Seconds(900)
            $0.signOutWarning = Seconds(600)
        },
        configuration(.advisory) {
            $0.longestSession = Seconds(900)
            $0.cleanupTimeout = Seconds(30)
            $0.requiresEnrolment = true
        },
        ManagedConfiguration(),
        configuration(.enforced),
        organisation(.strict),
        organisation(.advisory),
        organisation(.advisory, grace: 600),
        configuration(.strict) {
            $0.identity = .loginSession
            $0.passwordSignIn = nil
            $0.signOutOnScreenLock = true
        },
        configuration(.strict) {
            $0.cleanupTimeout = Seconds(60)
            $0.inactivityTimeout = Seconds(300)
            $0.inactivityAction = .lock
            $0.lockedTime = Seconds(1200)
        },
    ]
    /// The indices of the first configuration with the organisation's provider, and of the one with a short grace.
    static let (organisation, shortGrace) = (6, 8)
    /// The index of the configuration in which the login at the seat is the sign-in.
    static let seat = 9
    /// The index of the configuration that locks after inactivity.
    static let lock = 10
    static let issuer = "https://login.example"
    /// The user whose apps take part under an enforced policy.
    static let enforcedUser: UInt32 = 1000
    /// The index of the configuration that needs ``enforcedManifests``.
    static let enforced = 5

    private static func configuration(
        _ policy: CleanupPolicy.Kind,
        _ change: (inout ManagedConfiguration) -> Void = { _ in }
    ) -> ManagedConfiguration {
        var configuration = ManagedConfiguration()
        configuration.sharedDeviceMode = true
        configuration.passwordSignIn = true
        configuration.tenantIdentifier = "contoso"
        configuration.cleanupPolicy = policy
        change(&configuration)
        return configuration
    }

    private static func organisation(_ policy: CleanupPolicy.Kind, grace: Int = 3600) -> ManagedConfiguration {
        let text = """
            {"sharedDeviceMode": true, "tenantIdentifier": "contoso", "cleanupPolicy": "\(policy.rawValue)", "identity": "oidc",
                "oidcIssuer": "\(issuer)", "oidcClientID": "device", "offlineGrace": \(grace)}
            """
        // The text is valid: it is written above.
        return try! ManagedConfiguration(json: Data(text.utf8), file: "the simulation's")
    }

    /// The result of a faulty reader that takes a broken file for the defaults.
    static let defaults = {
        var configuration = ManagedConfiguration()
        configuration.sharedDeviceMode = true
        configuration.passwordSignIn = true
        return configuration
    }()
}
