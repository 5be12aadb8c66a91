import BrokerCore
import DeviceConfiguration
import Foundation
import Testing

@Suite("Keys of the managed configuration")
struct ConfigurationKeyTests {
    /// All keys of a device with its own directory. Each value differs from the default unless that would cause a
    /// warning.
    static let everyKey = """
        {
            "sharedDeviceMode": true, "organization": "Contoso", "identity": "embedded", "passwordSignIn": true,
            "microsoftBroker": false, "endsLoginSession": true,
            "tenantIdentifier": "contoso.example",
            "allowedUsers": {"users": ["ada@contoso.example"], "groups": ["nurses", "ward 7"]},
            "cleanupPolicy": "strict", "cleanupTimeout": 90.5, "requiresEnrolment": false, "requiresJoin": true,
            "inactivityTimeout": 600, "inactivityAction": "lock", "lockedTime": 300,
            "shiftEnds": ["22:00", "06:00", "14:00", "06:00"], "longestSession": 28800,
            "signOutWarning": 90, "signOutOnScreenLock": true, "signOutOnLogout": true,
            "endSessionURL": "http://localhost:8080/logout",
            "Enable_SSO_On_All_ManagedApps": 1, "AppAllowList": " com.example.a ,\\n com.example.b",
            "AppBlockList": "com.example.c", "AppPrefixAllowList": "com.example.,org.example.",
            "operators": ["root", "%root"]
        }
        """

    @Test("each key is read and has its documented effect")
    func everyKey() throws {
        let all = try configuration(Self.everyKey)
        let keys = try #require(JSONSerialization.jsonObject(with: Data(Self.everyKey.utf8)) as? [String: Any]).keys
        #expect(Set(keys) == Set(ManagedConfiguration.Key.allCases.map(\.rawValue)))
        #expect(all.unknownKeys == [] && all.warnings == [])

        let policy = DevicePolicy(all, hasManyUsers: true)
        var wanted = DevicePolicy()
        wanted.mode = .shared
        wanted.organization = "Contoso"
        wanted.passwordSignIn = true
        wanted.endsLoginSession = true
        wanted.tenantIdentifier = "contoso.example"
        wanted.allowedUsers = AllowedUsers(users: ["ada@contoso.example"], groups: ["nurses", "ward 7"])
        wanted.cleanup = CleanupPolicy(.strict, timeout: .milliseconds(90_500))
        wanted.requiresEnrolment = false
        wanted.requiresJoin = true
        wanted.schedule.inactivity = .seconds(600)
        wanted.schedule.locked = .seconds(300)
        wanted.schedule.shiftEnds = [6 * 60, 14 * 60, 22 * 60]
        wanted.schedule.longest = .seconds(28_800)
        wanted.schedule.warning = .seconds(90)
        wanted.endsAtScreenLock = true
        wanted.endsAtLogout = true
        wanted.endSessionURL = "http://localhost:8080/logout"
        wanted.lists = AppLists(
            allowed: ["com.example.a", "com.example.b"],
            blocked: ["com.example.c"],
            allowedPrefixes: ["com.example.", "org.example."],
            allowsAllManagedApps: true
        )
        wanted.operators = [0]
        wanted.operatorNames = ["root", "%root"]
        #expect(policy == wanted)
    }

    @Test("a stored configuration decodes to the same value")
    func keptConfiguration() throws {
        for text in [
            "{}", #"{"cleanupPolicy": "strict"}"#, #"{"cleanupTimeout": 0, "organization": "\u00e9\"\n"}"#,
            Self.everyKey, OrganisationSettingsTests.everyKey, "{\(OrganisationSettingsTests.needed)}",
            #"{\#(OrganisationSettingsTests.needed), "backChannelLogout": "/run/x.socket"}"#,
        ] {
            let configuration = try configuration(text)
            let kept = try JSONEncoder().encode(configuration)
            #expect(try ManagedConfiguration(json: kept, file: "kept") == configuration)
        }
    }

    @Test("an absent key has its documented default")
    func defaults() throws {
        let empty = try configuration("{}")
        #expect(empty == ManagedConfiguration() && DevicePolicy(empty, hasManyUsers: false) == DevicePolicy())
        #expect(empty.requiresEnrolment == nil && !empty.appLists.isExclusive)
        let shared = try configuration(#"{"sharedDeviceMode": true}"#)
        #expect(!DevicePolicy(shared, hasManyUsers: false).passwordSignIn)
    }

    @Test("a strict policy or a bus of many users requires enrolment by default")
    func enrolment() throws {
        for (text, alone, amongMany) in [
            (#"{"cleanupPolicy": "strict"}"#, true, true), (#"{"cleanupPolicy": "advisory"}"#, false, true),
            (#"{"cleanupPolicy": "strict", "requiresEnrolment": false}"#, false, false),
            (#"{"requiresEnrolment": true}"#, true, true), (#"{"requiresEnrolment": false}"#, false, false),
        ] {
            let configuration = try configuration(text)
            let required = [false, true].map { DevicePolicy(configuration, hasManyUsers: $0).requiresEnrolment }
            #expect(required == [alone, amongMany], "\(text)")
        }
    }

    @Test("a switch of Microsoft's plug-in accepts 0, 1 or a Boolean")
    func switches() throws {
        let read = try ["0", "1", "false", "true"].map { text in
            try configuration("{\"Enable_SSO_On_All_ManagedApps\": \(text)}").appLists.allowsAllManagedApps
        }
        #expect(read == [false, true, false, true])
    }

    @Test("the timeout is the longest wait of a sign-in, or an enforced policy's deadline")
    func timeouts() throws {
        let policies: [(text: String, longestWait: Duration?, deadline: Duration?)] = [
            // Without a timeout a strict policy waits for ever and an advisory one not at all.
            (#""cleanupPolicy": "strict""#, nil, nil), ("", .zero, nil),
            (#""cleanupPolicy": "strict", "cleanupTimeout": 0"#, .zero, nil),
            (#""cleanupTimeout": 2.5"#, .milliseconds(2500), nil),
            (#""cleanupPolicy": "strict", "cleanupTimeout": 30"#, .seconds(30), nil),
            // Under an enforced policy the default is a minute.
            (#""cleanupPolicy": "enforced""#, nil, .seconds(60)),
            (#""cleanupPolicy": "enforced", "cleanupTimeout": 5"#, nil, .seconds(5)),
        ]
        for (text, longestWait, deadline) in policies {
            let cleanup = try configuration("{\(text)}").cleanup
            #expect(cleanup.longestWait == longestWait && cleanup.deadline == deadline, "\(text)")
            #expect(deadline == nil || cleanup.isStrict && cleanup.expiry == nil, "\(text)")
        }
        let contradiction = try configuration(#"{"cleanupPolicy": "enforced", "requiresEnrolment": false}"#)
        #expect(contradiction.warnings.contains { $0.key == "requiresEnrolment" })
    }

    @Test("an end-session page must be https, or http on this machine")
    func endSessionURL() throws {
        for text in [
            "https://login.example.com/logout?x=1", "http://localhost/logout", "http://127.0.0.1:8080/",
            "http://[::1]:8080/",
        ] {
            #expect(try configuration("{\"endSessionURL\": \"\(text)\"}").endSessionURL?.text == text)
        }
        for text in [
            "http://login.example.com/", "http://localhost.example.com/", "ftp://localhost/", "login.example.com",
            "https://", "https:///logout", "https://user@example.com/", "https://exa mple.com/", "",
            "file:///etc/passwd",
        ] {
            #expect(configurationError("{\"endSessionURL\": \"\(text)\"}")?.key == "endSessionURL", "\(text)")
        }
    }
}

@Suite("Warnings about the managed configuration")
struct ConfigurationWarningTests {
    private func warnings(_ text: String) throws -> [String] { try configuration(text).warnings.map(\.description) }

    @Test("a warning about an unknown key suggests a similar key, if there is one")
    func misspelt() throws {
        for (key, meant) in [
            ("shareddevicemode", "sharedDeviceMode"), ("shared_device_mode", "sharedDeviceMode"),
            ("sharedDevicemod", "sharedDeviceMode"), ("AppAlowList", "AppAllowList"), ("appBlocklist", "AppBlockList"),
            ("Enable_SSO_On_All_ManagedApp", "Enable_SSO_On_All_ManagedApps"), ("shiftEnd", "shiftEnds"),
            ("requiresEnrollment", "requiresEnrolment"), ("cleanupPolciy", "cleanupPolicy"),
        ] {
            let text = "{\"sharedDeviceMode\": true, \"\(key)\": 1}"
            #expect(try warnings(text) == ["\"\(key)\" means nothing; is “\(meant)” meant?"])
        }
        for key in ["colour", "", "x", "PayloadStuff", String(repeating: "a", count: 100_000)] {
            #expect(try warnings("{\"sharedDeviceMode\": true, \"\(key)\": 1}") == ["\"\(key)\" means nothing"])
        }
        let many = (0..<10_000).map { "\"key\($0)\": 0" }.joined(separator: ", ")
        #expect(try warnings("{\"sharedDeviceMode\": true, \(many)}").count == 20, "only the first twenty")
    }

    @Test("a lock or a time limit that cannot work causes a warning")
    func idleLock() throws {
        let lock = #""sharedDeviceMode": true, "inactivityAction": "lock""#
        #expect(try warnings("{\(lock), \"inactivityTimeout\": 60}") == [])
        #expect(try warnings("{\(lock)}").first?.hasSuffix("inactivityTimeout is absent") == true)
        let login = try configuration(#"{\#(lock), "inactivityTimeout": 60, "identity": "login-session"}"#)
        #expect(login.warnings.map(\.key) == ["inactivityAction"])
        #expect(DevicePolicy(login, hasManyUsers: false).schedule.locked == nil)
        #expect(try configuration("{\(lock)}").meaning(of: .inactivityAction).contains("broker starts"))
        #expect(
            try warnings(#"{"sharedDeviceMode": true, "lockedTime": 60}"#)
                == [#""lockedTime" has no effect: no session is locked"#]
        )
        for (seconds, count) in [(5, 1), (10, 1), (11, 0)] {
            #expect(try warnings("{\"sharedDeviceMode\": true, \"inactivityTimeout\": \(seconds)}").count == count)
        }
    }

    @Test("the meaning of the warning names the times that a short limit shortens")
    func shortWarnings() throws {
        let short = try configuration(#"{"signOutWarning": 60, "longestSession": 30, "inactivityTimeout": 120}"#)
        let text = short.meaning(of: .signOutWarning)
        #expect(text.contains("60 seconds before a session ends by itself (15 seconds by longestSession), to"))
    }

    @Test("an absent mode and an app that is both allowed and blocked cause warnings")
    func doubtful() throws {
        for (text, expected) in [
            (#""organization": "A""#, ["\"sharedDeviceMode\" is absent: the device is personal"]),
            (
                #""sharedDeviceMode": true, "AppAllowList": "com.a.b,com.c.d", "AppBlockList": "com.c.d""#,
                ["\"AppBlockList\" has com.c.d, as AppAllowList has: it is blocked"]
            ),
            (#""sharedDeviceMode": true, "cleanupPolicy": "strict", "AppAllowList": "com.a.b""#, []),
            (
                #""sharedDeviceMode": true, "identity": "login-session", "allowedUsers": {"groups": ["nurses"]}"#,
                [
                    "\"allowedUsers\" has groups, and they let no user in: under \"identity\": \"login-session\" users "
                        + "have no groups"
                ]
            ),
        ] as [(String, [String])] {
            #expect(try warnings("{\(text)}") == expected)
        }
    }
}
