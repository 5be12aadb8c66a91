import DeviceConfiguration
import Foundation
@_spi(Extensions) import SharedDevice
import Testing

@testable import BrokerCore

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

    @Test("a claimed identifier is valid, and requires its manifest's program and user")
    func claims() throws {
        let identity = AppIdentity(identifier: "org.example.orders", manifest: orders)
        #expect(decide("org.example.orders", "/usr/bin/orders") == .success(identity))
        #expect(identity.isEnrolled)

        let program = try #require(decide("org.example.orders", "/usr/bin/other").refusal)
        #expect(program.description.contains("is not the program that its manifest names"))
        let user = try #require(decide("org.example.orders", "/usr/bin/orders", user: 1002).refusal)
        #expect(user.description.contains("is not run by the user") && user.description.contains("1002"))
        let free = AppManifest(identifier: "org.example.orders", identity: .init(executable: "/usr/bin/orders"))
        for user: UInt32 in [0, 1001, 1002] {
            let decision = decide("org.example.orders", "/usr/bin/orders", user: user, manifests: [free])
            #expect(decision == .success(AppIdentity(identifier: "org.example.orders", manifest: free)))
        }
        for identifier in ["", "a b", "a\nb", "\u{1b}[2J", "é", String(repeating: "a", count: 256)] {
            #expect(decide(identifier, "/opt/a").isRefused("invalid app identifier"), "\(identifier)")
        }
    }

    @Test("an app without a manifest is identified by claimed name, program and user")
    func noClaim() {
        let twin = AppManifest(identifier: "org.example.twin", identity: .init(executable: "/usr/bin/orders"))
        let identities: [(AppEligibility.Decision, AppIdentity)] = [
            // An app that claims no name is identified by its program if one manifest fits.
            (decide(nil, "/usr/bin/orders"), AppIdentity(identifier: "org.example.orders", manifest: orders)),
            (decide(nil, "/usr/bin/orders", user: 1002), AppIdentity(identifier: "/usr/bin/orders (uid 1002)")),
            (
                decide(nil, "/usr/bin/orders", manifests: [orders, twin]),
                AppIdentity(identifier: "/usr/bin/orders (uid 1001)")
            ),
            // The other user's process fits only one of the two manifests.
            (
                decide(nil, "/usr/bin/orders", user: 1002, manifests: [orders, twin]),
                AppIdentity(identifier: "org.example.twin", manifest: twin)
            ),
            (decide("com.example.a", "/opt/a", user: 7), AppIdentity(identifier: "com.example.a (/opt/a, uid 7)")),
            (decide(nil, "/opt/a", user: 7), AppIdentity(identifier: "/opt/a (uid 7)")),
        ]
        for (decision, identity) in identities { #expect(decision == .success(identity)) }
        #expect(!AppIdentity(identifier: "/opt/a (uid 7)").isEnrolled)
    }

    struct Row: Sendable {
        /// One of the two manifests' apps, or `unknown`.
        let app: String
        var block = false
        var allow: [String]?
        var prefix: [String]?
        var all = false
        var required = false
        /// Words of the refusal; `nil` if the app takes part.
        let refusal: String?
    }

    private static let (made, enrolled, unknown) = ("orders", "legacy", "unknown")
    private static let (itself, other) = (["%"], ["com.other.app"])

    @Test(
        "precedence: made for the mode, block, enrolment, allow, prefix, all managed",
        arguments: [
            // Apps made for shared device mode always take part.
            Row(app: made, refusal: nil), Row(app: made, block: true, refusal: nil),
            Row(app: made, block: true, allow: other, required: true, refusal: nil),
            // Enrolled apps that are not made for it.
            Row(app: enrolled, refusal: nil), Row(app: enrolled, block: true, refusal: "is blocked"),
            Row(app: enrolled, block: true, allow: itself, prefix: itself, all: true, refusal: "is blocked"),
            Row(app: enrolled, allow: itself, refusal: nil), Row(app: enrolled, allow: other, refusal: "on no list"),
            Row(app: enrolled, prefix: itself, refusal: nil), Row(app: enrolled, prefix: other, refusal: "on no list"),
            Row(app: enrolled, allow: other, prefix: itself, refusal: nil),
            Row(app: enrolled, allow: other, all: true, refusal: nil),
            Row(app: enrolled, required: true, refusal: "on no list"),
            Row(app: enrolled, all: true, required: true, refusal: nil),
            Row(app: enrolled, allow: itself, required: true, refusal: nil),
            Row(app: enrolled, prefix: itself, required: true, refusal: nil),
            Row(app: unknown, refusal: nil), Row(app: unknown, block: true, refusal: "is blocked"),
            Row(app: unknown, block: true, allow: itself, refusal: "is blocked"),
            Row(app: unknown, block: true, prefix: itself, refusal: "is blocked"),
            Row(app: unknown, allow: itself, refusal: nil), Row(app: unknown, allow: other, refusal: "on no list"),
            Row(app: unknown, prefix: itself, refusal: nil), Row(app: unknown, prefix: other, refusal: "on no list"),
            Row(app: unknown, all: true, refusal: nil),
            Row(app: unknown, allow: other, all: true, refusal: "on no list"),
            Row(app: unknown, required: true, refusal: "has no manifest"),
            Row(app: unknown, allow: itself, prefix: itself, all: true, required: true, refusal: "has no manifest"),
        ]
    )
    func precedence(row: Row) {
        let identifier = "org.example.\(row.app)"
        let lists = AppLists(
            allowed: row.allow?.map { $0 == "%" ? identifier : $0 },
            blocked: row.block ? [identifier] : ["org.example"],
            allowedPrefixes: row.prefix?.map { $0 == "%" ? "org.example." : $0 },
            allowsAllManagedApps: row.all
        )
        let decision = decide(identifier, "/usr/bin/\(row.app)", lists: lists, requiresEnrolment: row.required)
        #expect(decision.isRefused(row.refusal))
    }

    @Test("the refusal of an app without a manifest names the command, file and content")
    func remedyOfEnrolment() throws {
        func refusal(_ name: String, _ program: String) throws -> String {
            try #require(decide(name, program, requiresEnrolment: true).refusal).description
        }
        let text = try refusal("org.example.a", "/opt/a")
        for words in [
            "shared-device apps enrol /opt/a --id org.example.a", "/etc/shared-device/apps/org.example.a.json",
            #"{"id": "org.example.a", "executable": "/opt/a"}"#,
        ] {
            #expect(text.contains(words), "\(text)")
        }
        // The screen program needs a manifest in any case.
        for (name, isOffered) in [("org.example.a", true), (BrokerProtocol.screenIdentifier, false)] {
            #expect(try refusal(name, "/opt/a").contains("requiresEnrolment to false") == isOffered)
        }
        // If the caller's path or name is unsafe for a shell, the refusal names no command.
        for (name, program) in [
            ("org.example.a", "/tmp/x;reboot"), ("a.b`reboot`", "/opt/a"), ("org.example.a", "/opt/a b"),
        ] {
            let text = try refusal(name, program)
            #expect(!text.contains("apps enrol"), "\(text)")
        }
    }

    @Test("a configuration's lists match whole names, and its enrolment requirement counts")
    func lists() throws {
        let decisions = [
            decide("com.a.bc", "/opt/a", lists: AppLists(allowed: ["com.a.b"])),
            decide(nil, "/opt/a", lists: AppLists(allowed: ["/opt/a"], allowedPrefixes: ["/"])),
            // The lists also apply to a manifest that was found by the program alone.
            decide(nil, "/usr/bin/legacy", lists: AppLists(blocked: ["org.example.legacy"])),
        ]
        #expect(decisions[0].isRefused("on no list") && decisions[1].isRefused("on no list"))
        #expect(decisions[2].isRefused("is blocked"))
        let strict = try configuration(#"{"sharedDeviceMode": true, "cleanupPolicy": "strict"}"#)
        let device = VirtualDevice()
        device.use(orders)
        device.configure { $0 = DevicePolicy(strict, hasManyUsers: false) }
        let stranger = device.send(device.app(nil, user: 0, executable: "/opt/a"), .currentAccount)
        device.expectRefused(stranger, code: .appNotEligible)
        _ = try device.session(for: device.app(nil, user: 1001, executable: "/usr/bin/orders"))
        let listed = try configuration(#"{"sharedDeviceMode": true, "AppBlockList": "com.a.b"}"#)
        device.configure { $0 = DevicePolicy(listed, hasManyUsers: false) }
        let refusal = device.refusal(device.send(device.app("com.a.b"), .currentAccount))
        #expect(refusal?.description.contains("AppBlockList") == true)
        // A blocked app that is made for the mode takes part all the same.
        let lists = AppLists(blocked: ["org.example.orders", "org.example.legacy", "com.other"])
        let warnings = AppEligibility(lists: lists, manifests: [orders, legacy]).warnings
        #expect(warnings.count == 1 && warnings.first?.contains("org.example.orders") == true)
    }

    @Test("an adapter that was started by hand is told to use its unit")
    func adapterByHand() throws {
        let cleanup = #"{"unit": "kiosk.service", "delete": ["/var/lib/kiosk"]}"#
        let text = #"{"id": "org.example.kiosk", "user": 1001, "cleanup": \#(cleanup)}"#
        let eligibility = AppEligibility(manifests: [try AppManifest(json: Data(text.utf8), file: "kiosk.json")])
        func words(user: UInt32, unit: String?) throws -> String {
            let program = AppCredentials(user: user, executable: "/usr/bin/shared-device-cleanup", unit: unit)
            return try #require(eligibility.decide(program, claiming: "org.example.kiosk").refusal).description
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
        // If only one app has the program, it also inherits the debts of callers that claimed no name.
        #expect(keys([one], app) == [own, "/usr/bin/python3 (uid 7)"] && keys([one, two], app) == [own])
        #expect(keys([one], AppIdentity(identifier: own)).isEmpty)
    }

    @Test("a refused app can be identified, and never as another app")
    func refused() {
        let eligibility = AppEligibility(
            lists: AppLists(blocked: ["org.example.legacy"]),
            requiresEnrolment: true,
            manifests: [orders, legacy]
        )
        for (claimed, executable, expected) in [
            ("org.example.legacy", "/usr/bin/legacy", "org.example.legacy"),
            ("org.example.guest", "/usr/bin/guest", "org.example.guest (/usr/bin/guest, uid 1001)"),
            ("org.example.orders", "/usr/bin/bad", "org.example.orders (/usr/bin/bad, uid 1001)"),
            ("org.example.orders (/usr/bin/orders, uid 1001)", "/usr/bin/bad", nil),
        ] {
            let caller = AppCredentials(user: 1001, executable: executable)
            #expect(eligibility.identityOfRefused(caller, claiming: claimed)?.identifier == expected)
        }
    }
}

extension Result<AppIdentity, Refusal> {
    var refusal: Refusal? { if case .failure(let refusal) = self { refusal } else { nil } }

    /// Whether it is a refusal with these words, or with `nil` none.
    func isRefused(_ words: String?) -> Bool {
        guard let words else { return refusal == nil }
        return refusal?.code == .appNotEligible && refusal?.description.contains(words) == true
    }
}
