import Glibc
@_spi(Extensions) import SharedDevice
import Testing

@testable import DeviceConfiguration

@Suite("The policy of the system bus")
struct BusPolicyTests {
    private static let names = BusPolicy.Names(
        name: { [1001: "orders", 1002: "a<b&\"\u{301}c"][$0] },
        isUser: { ["ada", "shared-device", "shared-device-identity", "shared-device-agent"].contains($0) },
        isGroup: { ["sudo", "helpdesk"].contains($0) }
    )

    private func policy(_ json: String = "", _ identities: AppManifest.Identity...) throws -> BusPolicy {
        let manifests = identities.enumerated().map { number, identity in
            AppManifest(identifier: "org.example.app\(number)", identity: identity)
        }
        let configuration = try configuration(#"{"sharedDeviceMode": true\#(json)}"#)
        return try BusPolicy(.present(configuration), manifests, names: Self.names)
    }

    @Test("only root, services, administrators, operators and manifests' users may call")
    func closed() throws {
        let operators = #", "operators": ["shared-device-agent", "%helpdesk", "gone", "%gone"]"#
        let policy = try policy(
            operators,
            .init(executable: "/usr/bin/orders", user: 1001),
            // On the system bus, an executable without a user identifies no app.
            .init(executable: "/usr/bin/shared-device-sign-in")
        )
        let users = ["orders", "root", "shared-device", "shared-device-agent", "shared-device-identity"]
        #expect(policy == .only(users: users, groups: ["helpdesk", "sudo"], unknown: ["%gone", "gone"]))
        #expect("\(policy)".hasSuffix("the system does not know these operators yet: %gone, gone"))
        #expect(policy.xml.contains(#"<deny send_destination="org.notifycenter.SharedDevice1"/>"#))
        for user in users { #expect(policy.xml.contains(#"<policy user="\#(user)"><allow "#), "\(user)") }
        #expect(policy.xml.contains(#"<policy group="helpdesk"><allow "#))
        let escaped = try self.policy("", .init(executable: "/usr/bin/orders", user: 1002))
        #expect(escaped.xml.contains(#"<policy user="a&lt;b&amp;&quot;\#u{301}c"><allow "#))
    }

    @Test(
        "all users may call if any user may take part, or the device is not shared",
        arguments: [
            (#", "requiresEnrolment": false"#, AppManifest.Identity(executable: "/usr/bin/orders", user: 1001)),
            ("", AppManifest.Identity(unit: "orders.service")),
            ("", AppManifest.Identity(appArmor: "snap.orders.orders")),
            // The bus would ignore a rule for a number without a user name.
            ("", AppManifest.Identity(executable: "/usr/bin/orders", user: 4711)),
        ]
    )
    func open(_ json: String, _ identity: AppManifest.Identity) throws {
        let personal = try configuration(#"{"sharedDeviceMode": false}"#)
        for policy in [
            try policy(json, .init(executable: "/usr/bin/till", user: 1001), identity),
            try BusPolicy(.present(personal), [], names: Self.names), try BusPolicy(.missing, [], names: Self.names),
        ] {
            guard case .everyone = policy else {
                Issue.record("closed: \(policy)")
                continue
            }
            #expect(!policy.xml.contains("deny") && policy.xml.contains("<busconfig>"), "\(policy)")
        }
    }

    @Test(
        "all users may call if the user who is logged in reports input",
        arguments: [
            (#""identity": "login-session", "inactivityTimeout": 600"#, nil, true),
            (#""identity": "login-session", "inactivityTimeout": 600"#, 1001, false),
            (#""identity": "login-session""#, nil, false),
            (#""inactivityTimeout": 600"#, nil, false),
        ] as [(String, uid_t?, Bool)]
    )
    func input(_ json: String, _ user: uid_t?, _ isOpen: Bool) throws {
        let manifest = AppManifest(
            identifier: BrokerProtocol.activityIdentifier,
            identity: .init(executable: "/usr/bin/shared-device-activity", user: user)
        )
        let configuration = try configuration(#"{"sharedDeviceMode": true, \#(json)}"#)
        let policy = try BusPolicy(.present(configuration), [manifest], names: Self.names)
        if case .everyone = policy { #expect(isOpen) } else { #expect(!isOpen) }
    }

    @Test("a bad manifest keeps the rules of the previous policy")
    func kept() throws {
        let former = BusPolicy.only(users: ["root", "a<b"], groups: ["sudo"]).xml
        let next = BusPolicy.only(users: ["root", "orders"], groups: ["sudo"])
        func rules(_ xml: String) -> Set<Substring> {
            Set(xml.split(separator: "\n").filter { $0.contains("<policy") })
        }
        #expect(
            rules(next.beside(badManifest: "a.json", former: former).xml)
                == rules(BusPolicy.only(users: ["root", "orders", "a<b"], groups: ["sudo"]).xml)
        )
        let open = BusPolicy.everyone("the device is personal")
        #expect(open.beside(badManifest: "a.json", former: former) == (open, open.xml))
        // No rule is known for the app of the bad manifest.
        for former in [open.xml, nil] {
            let opened = next.beside(badManifest: "a.json", former: former)
            #expect(opened == (.everyone("the user of a.json is not known"), open.xml))
        }
    }

    @Test("a failing user database gives no policy")
    func lookupFailure() throws {
        let names = BusPolicy.Names(
            name: { number throws(SystemUser.LookupFailure) in
                throw SystemUser.LookupFailure(user: "\(number)", code: EIO)
            },
            isUser: { _ in true },
            isGroup: { _ in true }
        )
        let configuration = try configuration(#"{"sharedDeviceMode": true}"#)
        let manifest = AppManifest(identifier: "org.example.a", identity: .init(executable: "/a", user: 1001))
        #expect(throws: SystemUser.LookupFailure.self) {
            try BusPolicy(.present(configuration), [manifest], names: names)
        }
    }
}
