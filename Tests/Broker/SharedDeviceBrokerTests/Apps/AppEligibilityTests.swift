import DeviceConfiguration
import Foundation
import SharedDevice
import Testing

@testable import SharedDeviceBroker

@Suite("Which apps may take part")
struct AppEligibilityTests {
    private let orders = AppManifest(
        identifier: "org.example.orders",
        identity: .init(executable: "/usr/bin/orders", user: 1001)
    )
    private let legacy = AppManifest(
        identifier: "org.example.legacy",
        identity: .init(executable: "/usr/bin/legacy"),
        supportsSharedDeviceMode: false
    )

    private func decide(
        _ identifier: String?,
        _ executable: String,
        user: UInt32 = 1001,
        lists: AppLists = AppLists(),
        requiresEnrolment: Bool = false,
        manifests: [AppManifest]? = nil
    ) -> AppEligibility.Decision {
        AppEligibility(lists: lists, requiresEnrolment: requiresEnrolment, manifests: manifests ?? [orders, legacy])
            .decide(AppCredentials(user: user, executable: executable), claiming: identifier)
    }

    private func refusal(_ decision: AppEligibility.Decision) -> EligibilityRefusal? {
        if case .failure(let refusal) = decision { refusal } else { nil }
    }

    @Test("a claimed identifier with a manifest requires its program and its user")
    func claims() throws {
        let identity = AppIdentity(identifier: "org.example.orders", manifest: orders)
        #expect(decide("org.example.orders", "/usr/bin/orders") == .success(identity))
        #expect(identity.isEnrolled)

        let program = try #require(refusal(decide("org.example.orders", "/usr/bin/other")))
        #expect(program.code == .notTheProgram)
        #expect(program.description.contains("is not the program that its manifest names"))
        let user = try #require(refusal(decide("org.example.orders", "/usr/bin/orders", user: 1002)))
        #expect(user.code == .notTheUser && user.description.contains("1002"))
        let free = AppManifest(identifier: "org.example.orders", identity: .init(executable: "/usr/bin/orders"))
        for user: UInt32 in [0, 1001, 1002] {
            let decision = decide("org.example.orders", "/usr/bin/orders", user: user, manifests: [free])
            #expect(decision == .success(AppIdentity(identifier: "org.example.orders", manifest: free)))
        }
    }

    @Test("an app that claims no name is identified by its program if one manifest fits")
    func noClaim() {
        #expect(
            decide(nil, "/usr/bin/orders") == .success(AppIdentity(identifier: "org.example.orders", manifest: orders))
        )
        let stranger = AppIdentity(identifier: "/usr/bin/orders (uid 1002)")
        #expect(decide(nil, "/usr/bin/orders", user: 1002) == .success(stranger))
        #expect(!stranger.isEnrolled)
        let twin = AppManifest(identifier: "org.example.twin", identity: .init(executable: "/usr/bin/orders"))
        let decision = decide(nil, "/usr/bin/orders", manifests: [orders, twin])
        #expect(decision == .success(AppIdentity(identifier: "/usr/bin/orders (uid 1001)")))
        // The other user's process fits only one of the two manifests.
        let other = decide(nil, "/usr/bin/orders", user: 1002, manifests: [orders, twin])
        #expect(other == .success(AppIdentity(identifier: "org.example.twin", manifest: twin)))
    }

    @Test("an app without a manifest is identified by claimed name, program and user")
    func strangers() {
        #expect(
            decide("com.example.a", "/opt/a", user: 7)
                == .success(AppIdentity(identifier: "com.example.a (/opt/a, uid 7)"))
        )
        #expect(decide(nil, "/opt/a", user: 7) == .success(AppIdentity(identifier: "/opt/a (uid 7)")))
    }

    @Test(
        "an invalid identifier is refused",
        arguments: ["", "a b", "a\nb", "\u{1b}[2J", "é", String(repeating: "a", count: 256)]
    )
    func malformed(identifier: String) {
        #expect(refusal(decide(identifier, "/opt/a"))?.code == .malformedIdentifier)
    }

    struct Row: Sendable, CustomTestStringConvertible {
        enum App: String { case made, enrolled, unknown }
        let app: App
        var block = false
        var allow: [String]?
        var prefix: [String]?
        var all = false
        var required = false
        /// `nil` if the app takes part.
        let refusal: EligibilityRefusal.Code?

        var testDescription: String {
            "\(app.rawValue) block:\(block) allow:\(allow ?? []) prefix:\(prefix ?? []) all:\(all) required:\(required)"
        }
    }

    private static let itself = ["%"]
    private static let other = ["com.other.app"]

    @Test(
        "precedence: made for the mode, block, enrolment, allow, prefix, all managed",
        arguments: [
            // Apps made for shared device mode always take part.
            Row(app: .made, refusal: nil), Row(app: .made, block: true, refusal: nil),
            Row(app: .made, block: true, allow: other, required: true, refusal: nil),
            // Enrolled apps that are not made for it.
            Row(app: .enrolled, refusal: nil), Row(app: .enrolled, block: true, refusal: .blocked),
            Row(app: .enrolled, block: true, allow: itself, prefix: itself, all: true, refusal: .blocked),
            Row(app: .enrolled, allow: itself, refusal: nil), Row(app: .enrolled, allow: other, refusal: .notListed),
            Row(app: .enrolled, prefix: itself, refusal: nil), Row(app: .enrolled, prefix: other, refusal: .notListed),
            Row(app: .enrolled, allow: other, prefix: itself, refusal: nil),
            Row(app: .enrolled, allow: other, all: true, refusal: nil),
            Row(app: .enrolled, required: true, refusal: .notListed),
            Row(app: .enrolled, all: true, required: true, refusal: nil),
            Row(app: .enrolled, allow: itself, required: true, refusal: nil),
            Row(app: .enrolled, prefix: itself, required: true, refusal: nil),
            Row(app: .unknown, refusal: nil), Row(app: .unknown, block: true, refusal: .blocked),
            Row(app: .unknown, block: true, allow: itself, refusal: .blocked),
            Row(app: .unknown, block: true, prefix: itself, refusal: .blocked),
            Row(app: .unknown, allow: itself, refusal: nil), Row(app: .unknown, allow: other, refusal: .notListed),
            Row(app: .unknown, prefix: itself, refusal: nil), Row(app: .unknown, prefix: other, refusal: .notListed),
            Row(app: .unknown, all: true, refusal: nil),
            Row(app: .unknown, allow: other, all: true, refusal: .notListed),
            Row(app: .unknown, required: true, refusal: .notEnrolled),
            Row(app: .unknown, allow: itself, prefix: itself, all: true, required: true, refusal: .notEnrolled),
        ]
    )
    func precedence(row: Row) {
        let identifier =
            switch row.app {
            case .made: "org.example.orders"
            case .enrolled: "org.example.legacy"
            case .unknown: "org.example.unknown"
            }
        let lists = AppLists(
            allowed: row.allow?.map { $0 == "%" ? identifier : $0 },
            blocked: row.block ? [identifier] : ["org.example"],
            allowedPrefixes: row.prefix?.map { $0 == "%" ? "org.example." : $0 },
            allowsAllManagedApps: row.all
        )
        let program = identifier.replacingPrefix("org.example.", with: "/usr/bin/")
        let decision = decide(identifier, program, lists: lists, requiresEnrolment: row.required)
        #expect(refusal(decision)?.code == row.refusal)
    }

    @Test("the refusal of an app without a manifest names the command, file and content")
    func remedyOfEnrolment() throws {
        let text = try #require(refusal(decide("org.example.a", "/opt/a", requiresEnrolment: true))?.description)
        for words in [
            "shared-device apps enrol /opt/a --id org.example.a", "/etc/shared-device/apps/org.example.a.json",
            #"{"id": "org.example.a", "executable": "/opt/a"}"#,
        ] {
            #expect(text.contains(words), "\(text)")
        }
    }

    @Test("a refusal shows no command if the caller's path or name is unsafe for a shell")
    func noCommandOfAStranger() throws {
        for (name, program) in [
            ("org.example.a", "/tmp/x;reboot"), ("a.b`reboot`", "/opt/a"), ("org.example.a", "/opt/a b"),
        ] {
            let text = "\(try #require(refusal(decide(name, program, requiresEnrolment: true))))"
            #expect(!text.contains("apps enrol"), "\(text)")
        }
    }

    @Test("an exact list matches no prefix, and no list matches an app without a name")
    func exact() {
        #expect(refusal(decide("com.a.bc", "/opt/a", lists: AppLists(allowed: ["com.a.b"])))?.code == .notListed)
        #expect(
            refusal(decide(nil, "/opt/a", lists: AppLists(allowed: ["/opt/a"], allowedPrefixes: ["/"])))?.code
                == .notListed
        )
        // The lists also apply to a manifest that was found by the program alone.
        #expect(
            refusal(decide(nil, "/usr/bin/legacy", lists: AppLists(blocked: ["org.example.legacy"])))?.code == .blocked
        )
    }

    @Test("a configuration sets the app lists and the enrolment requirement")
    func lists() throws {
        let strict = try configuration(#"{"sharedDeviceMode": true, "cleanupPolicy": "strict"}"#)
        let device = VirtualDevice()
        device.use(orders)
        device.configure { $0 = DevicePolicy(strict, hasManyUsers: false) }
        let stranger = device.send(device.app(nil, user: 0, executable: "/opt/a"), .currentAccount)
        device.expectRefused(stranger, code: .appNotEligible)
        _ = try device.session(for: device.app(nil, user: 1001, executable: "/usr/bin/orders"))
        let listed = try configuration(
            #"{"sharedDeviceMode": true, "AppBlockList": "com.a.b"}"#
        )
        device.configure { $0 = DevicePolicy(listed, hasManyUsers: false) }
        #expect(
            device.refusal(device.send(device.app("com.a.b"), .currentAccount))?.description.contains("AppBlockList")
                == true
        )
    }

    @Test("a warning names blocked apps that are made for the mode")
    func warnings() throws {
        let lists = AppLists(blocked: ["org.example.orders", "org.example.legacy", "com.other"])
        let warnings = AppEligibility(lists: lists, manifests: [orders, legacy]).warnings
        #expect(warnings.count == 1 && warnings.first?.contains("org.example.orders") == true)
    }
}

extension String {
    fileprivate func replacingPrefix(_ prefix: String, with other: String) -> String {
        hasPrefix(prefix) ? other + dropFirst(prefix.count) : self
    }
}

extension AppEligibilityTests {
    @Test("an adapter that was started by hand is told to use its unit")
    func adapterByHand() throws {
        let cleanup = #"{"unit": "kiosk.service", "delete": ["/var/lib/kiosk"]}"#
        let text = #"{"id": "org.example.kiosk", "user": 1001, "cleanup": \#(cleanup)}"#
        let eligibility = AppEligibility(manifests: [try AppManifest(json: Data(text.utf8), file: "kiosk.json")])
        func words(user: UInt32, unit: String?) throws -> String {
            let program = AppCredentials(user: user, executable: "/usr/bin/shared-device-cleanup", unit: unit)
            return "\(try #require(refusal(eligibility.decide(program, claiming: "org.example.kiosk"))))"
        }
        let unit = "shared-device-cleanup@org.example.kiosk"
        for byHand in [try words(user: 0, unit: "ssh.service"), try words(user: 1001, unit: nil)] {
            let remedy = "not in \(unit).service; start it with: systemctl start \(unit)"
            #expect(byHand.contains("is known by its adapter's unit") && byHand.contains(remedy), "\(byHand)")
            #expect(!byHand.contains("\"unit\""), "\(byHand)")
        }
        let inUnit = try words(user: 1001, unit: "\(unit).service")
        #expect(inUnit.contains("not root's, but user 1001's"), "\(inUnit)")
    }

    @Test("an app inherits the debts of its program only if no other app shares the program")
    func formerKeys() {
        let one = AppManifest(identifier: "org.example.one", identity: .init(executable: "/usr/bin/python3"))
        let two = AppManifest(identifier: "org.example.two", identity: .init(executable: "/usr/bin/python3"))
        let app = AppIdentity(identifier: "org.example.one", manifest: one)
        func keys(_ manifests: [AppManifest], _ app: AppIdentity) -> [String] {
            AppEligibility(manifests: manifests)
                .formerKeys(of: app, AppCredentials(user: 7, executable: "/usr/bin/python3"))
        }
        let own = "org.example.one (/usr/bin/python3, uid 7)"
        // If only one app has the program, it also inherits the debts without a name.
        #expect(keys([one], app) == [own, "/usr/bin/python3 (uid 7)"] && keys([one, two], app) == [own])
        #expect(keys([one], AppIdentity(identifier: own)).isEmpty)
    }

    @Test("a refused app can be identified, and never as another app")
    func refused() {
        let legacy = AppManifest(
            identifier: "org.example.legacy",
            identity: .init(executable: "/usr/bin/legacy"),
            supportsSharedDeviceMode: false
        )
        let eligibility = AppEligibility(
            lists: AppLists(blocked: ["org.example.legacy"]),
            requiresEnrolment: true,
            manifests: [orders, legacy]
        )
        func identifier(_ claimed: String?, _ executable: String) -> String? {
            eligibility.identityOfRefused(AppCredentials(user: 1001, executable: executable), claiming: claimed)?
                .identifier
        }
        for (claimed, executable, expected) in [
            ("org.example.legacy", "/usr/bin/legacy", "org.example.legacy"),
            ("org.example.guest", "/usr/bin/guest", "org.example.guest (/usr/bin/guest, uid 1001)"),
            ("org.example.orders", "/usr/bin/bad", "org.example.orders (/usr/bin/bad, uid 1001)"),
            ("org.example.orders (/usr/bin/orders, uid 1001)", "/usr/bin/bad", nil),
        ] {
            #expect(identifier(claimed, executable) == expected)
        }
    }
}
