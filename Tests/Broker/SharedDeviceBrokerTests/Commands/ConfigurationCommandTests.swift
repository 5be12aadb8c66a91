import Foundation
import Glibc
import NotifyCenterTestKit
import Testing

@Suite("shared-device configuration check")
struct ConfigurationCommandTests {
    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory() }

    private func check(_ text: String, _ arguments: String...) async throws -> Program.Outcome {
        try directory.write(text, to: "managed")
        return try await check(arguments)
    }

    private func check(_ arguments: [String]) async throws -> Program.Outcome {
        try await Program.sharedDevice.run(["configuration", "check", directory.file("managed")] + arguments)
    }

    private func object(_ outcome: Program.Outcome) throws -> [String: Any] {
        let value = try JSONSerialization.jsonObject(with: Data(outcome.output.utf8))
        return try #require(value as? [String: Any])
    }

    private func expectLines(
        _ wanted: [String],
        in outcome: Program.Outcome,
        sourceLocation: SourceLocation = #_sourceLocation
    ) {
        #expect(outcome.status == 0 && outcome.errors == "", sourceLocation: sourceLocation)
        let lines = outcome.output.split(separator: "\n").map { $0.split(separator: " ").joined(separator: " ") }
        #expect(wanted.filter { !lines.contains($0) } == [], sourceLocation: sourceLocation)
    }

    @Test("a valid file is printed with all values, their meaning and warnings, or as JSON")
    func valid() async throws {
        let outcome = try await check(
            #"{"sharedDeviceMode": true, "cleanupPolicy": "strict", "shiftEnds": ["06:00", "14:00"], "AppList": 1}"#
        )
        #expect(outcome.output.hasPrefix("The device is shared. The file is valid.\n"))
        let lines = [
            "sharedDeviceMode true", "cleanupPolicy strict", "requiresEnrolment -", "shiftEnds 06:00, 14:00",
            "organization -", "Enable_SSO_On_All_ManagedApps 0", "longestSession -", "signOutWarning 60",
            "inactivityAction signOut", "lockedTime 900",
            "warning: \"AppList\" means nothing",
            "At most one account is signed in on this device, for all of its apps.",
            "Only apps with a manifest take part, because the cleanup policy is strict.",
            "The user is signed out at 06:00 and 14:00 each day, in local time.",
            "Apps are told 60 seconds before a session ends by itself, to warn the user.",
        ]
        expectLines(lines, in: outcome)
        let json = try await check(#"{"sharedDeviceMode": true, "cleanupTimeout": 2.5, "x": 1}"#, "--json")
        let told = try object(json)
        #expect(json.status == 0 && told["valid"] as? Bool == true && told["mode"] as? String == "shared")
        let warnings = try #require(told["warnings"] as? [[String: Any]])
        #expect(warnings.map { $0["key"] as? String } == ["x"])
        let settings = try #require(told["settings"] as? [String: Any])
        #expect(settings["sharedDeviceMode"] as? Bool == true && settings["cleanupTimeout"] as? Double == 2.5)
        #expect(settings["cleanupPolicy"] as? String == "advisory" && settings["organization"] is NSNull)
    }

    @Test("warnings follow the first line, and make --strict exit with 65")
    func warnings() async throws {
        let text = #"{"sharedDevicemode": true}"#
        let outcome = try await check(text)
        #expect(outcome.status == 0)
        let lines = outcome.output.split(separator: "\n").prefix(2)
        #expect(lines.first == "The device is personal. The file is valid.")
        #expect(lines.last == "warning: \"sharedDevicemode\" means nothing; is “sharedDeviceMode” meant?")
        #expect(try await check(text, "--strict").status == 65)
        #expect(try await check(#"{"sharedDeviceMode": true}"#, "--strict").status == 0)
    }

    @Test("all errors go to stderr at once, with the type found, and exit with 65")
    func severalMistakes() async throws {
        mkdir(directory.file("apps"), 0o755)
        try directory.write("{", to: "apps/till.json")
        let text = #"{"sharedDeviceMode": "true", "requiresJoin": 1, "shiftEnds": [6], "cleanupPolicy": "lax"}"#
        let plain = try await check(text)
        #expect(plain.status == 65 && plain.output == "")
        let lines = plain.errors.split(separator: "\n")
        let parts = [
            "\"sharedDeviceMode\": the value is a text; write true or false, without quotation marks, or",
            "\"requiresJoin\": the value is a number; write true or false, or",
            "\"shiftEnds\": there is a number in the value; write an array of strings, or",
            "\"cleanupPolicy\": it is “lax”", "till.json",
        ]
        let counts = parts.map { part in lines.count { $0.contains(part) } }
        #expect(lines.count == 5 && counts == [1, 1, 1, 1, 1], "\(plain.errors)")
        #expect(lines.contains { $0.hasPrefix("shared-device: \(directory.file("managed")): \"sharedDeviceMode\"") })
        // With --json they go to stdout, too.
        let json = try await check(["--json"])
        #expect(json.status == 65 && json.errors == plain.errors)
        let object = try object(json)
        let problems = try #require(object["problems"] as? [[String: Any]])
        #expect(object["valid"] as? Bool == false && problems.count == 5)
        let texts = problems.map { "\($0["code"] ?? "") \($0["key"] ?? "")" }
        #expect(texts.contains("wrongType sharedDeviceMode"))
    }

    @Test("the provider's keys are printed only if a provider is configured")
    func provider() async throws {
        let embedded = try await check(#"{"sharedDeviceMode": true}"#)
        #expect(embedded.status == 0 && !embedded.output.contains("oidcIssuer"))
        let outcome = try await check(
            """
            {"sharedDeviceMode": true, "identity": "oidc", "oidcIssuer": "https://login.example.com",
             "oidcClientID": "kiosk", "oidcLoopbackPorts": [8400, 8401],
             "oidcEndpoints": {"jwks_uri": "https://login.example.com/keys"}}
            """
        )
        let lines = [
            "identity oidc", "oidcIssuer https://login.example.com", "oidcLoopbackPorts 8400, 8401",
            "oidcEndpoints jwks_uri https://login.example.com/keys", "remoteCheckInterval 300",
            "https://login.example.com says who people are.",
            "A browser comes back to 127.0.0.1, port 8400 or 8401.",
        ]
        expectLines(lines, in: outcome)
    }

    @Test("a lock without a manifest of the screen program that counts causes a warning")
    func screenOfLock() async throws {
        let lock = #"{"sharedDeviceMode": true, "inactivityTimeout": 60, "inactivityAction": "lock"}"#
        let missing = try await check(lock)
        let remedy = "run: shared-device apps enrol"
        #expect(missing.output.contains("has no manifest") && missing.output.contains(remedy), "\(missing.output)")
        mkdir(directory.file("apps"), 0o755)
        for (user, keys) in [("", ["inactivityAction"]), (#", "user": "root""#, [])] {
            let screen = #"{"id": "org.notifycenter.shared-device-screen", "executable": "/no/screen"\#(user)}"#
            try directory.write(screen, to: "apps/screen.json")
            let warnings = try object(try await check(["--json"]))["warnings"] as? [[String: Any]]
            #expect(warnings?.map { $0["key"] as? String } == keys)
        }
    }

    @Test("a profile is converted to a valid file; a bad or missing one is an error")
    func convert() async throws {
        let profile = """
            <plist><dict><key>sharedDeviceMode</key><true/><key>Type</key><string>Redirect</string></dict></plist>
            """
        let refused = try await check(profile)
        let managed = directory.file("managed")
        let remedy = "; run: shared-device configuration convert \(managed)\n"
        #expect(refused.status == 65 && refused.errors.contains(remedy))

        let converted = try await Program.sharedDevice.run(["configuration", "convert", managed])
        let warning = "shared-device: \(managed): \"Type\" means something on iOS only\n"
        #expect(converted.status == 0 && converted.errors == warning)
        let valid = try await check(converted.output)
        #expect(valid.status == 0 && valid.output.hasPrefix("The device is shared."))
        unlink(managed)
        let missing = try await check([])
        #expect(missing.status == 66 && missing.errors == "shared-device: there is no file \(managed)\n")
        #expect(try await Program.sharedDevice.run(["configuration", "convert", managed]).status == 66)
        try directory.write("<plist><array/></plist>", to: "managed")
        let broken = try await Program.sharedDevice.run(["configuration", "convert", managed])
        #expect(broken.status == 65 && broken.output == "")
        #expect(broken.errors.contains("its outermost element is not a <dict>"))
    }

    @Test("a manifest that lacks one of oidcScopes is named, unlike the documented one")
    func scopesOfManifests() async throws {
        let page = #filePath.components(separatedBy: "/Tests/")[0] + "/Documentation/Organisation.md"
        let blocks = try String(contentsOfFile: page, encoding: .utf8).components(separatedBy: "```")
        let block = try #require(blocks.first { $0.contains(#""com.microsoft.identity.broker1""#) })
        let manifest = block.dropFirst("json".count).replacingOccurrences(of: "kiosk", with: "root")
        let provider = """
            {"sharedDeviceMode": true, "identity": "oidc", "oidcIssuer": "https://login.example.com", "oidcClientID": "kiosk"}
            """
        mkdir(directory.file("apps"), 0o755)
        try directory.write(manifest, to: "apps/microsoft.json")
        let documented = try await check(provider)
        #expect(documented.status == 0 && !documented.output.contains("oidcScopes:"), "\(documented)")
        try directory.write(manifest.replacingOccurrences(of: #", "email""#, with: ""), to: "apps/microsoft.json")
        let lacking = try await check(provider)
        #expect(lacking.output.contains("lacks email of oidcScopes in the manifest of com.microsoft.identity.broker1"))
    }

    @Test("the apps and masks next to the file are listed, and a bad manifest exits with 65")
    func apps() async throws {
        mkdir(directory.file("apps"), 0o755)
        try directory.write(
            #"{"id": "org.example.orders", "executable": "/no/orders", "store": 1}"#,
            to: "apps/orders.json"
        )
        let good = try await check(#"{"sharedDeviceMode": true, "AppBlockList": "org.example.orders"}"#)
        #expect(good.status == 0 && good.output.contains("org.example.orders  /no/orders (hint)  any user"))
        #expect(good.output.contains("is “stores” meant?"))
        #expect(good.output.contains("AppBlockList has org.example.orders, which takes part because it was made"))

        try directory.write(
            #"{"id": "org.example.orders", "executable": "/no/orders", "allowedUsers": {"groups": ["nurses"]}}"#,
            to: "apps/orders.json"
        )
        let open = try await check(
            #"{"sharedDeviceMode": true, "identity": "login-session", "requiresEnrolment": false}"#
        )
        #expect(open.output.contains("users have no groups in the manifest of org.example.orders"))
        #expect(open.output.contains("org.example.orders has allowedUsers in its manifest, and can take part"))
        #expect(try await check(#"{"sharedDeviceMode": true}"#, "--strict").status == 0)

        mkdir(directory.file("data"), 0o755)
        // A manifest is refused if a path to delete has an empty part.
        let data = directory.file("data").replacing("//", with: "/")
        let absent = directory.file("no data").replacing("//", with: "/")
        let cleanup = #"{"by": "app", "delete": ["\#(data)", "\#(absent)"]}"#
        try directory.write(
            #"{"id": "org.example.orders", "executable": "/no/orders", "user": 4711, "cleanup": \#(cleanup)}"#,
            to: "apps/orders.json"
        )
        let deleting = try await check([])
        let lines = deleting.output.split(separator: "\n")
        #expect(lines.contains("    deletes \(data)") && lines.contains("    deletes \(absent) (nothing is there yet)"))

        try directory.write("{", to: "apps/photos.json")
        let bad = try await check(["--json"])
        #expect(bad.status == 65 && bad.errors.contains(directory.file("apps/photos.json")))
        let found = try object(bad)
        #expect(found["valid"] as? Bool == false)
        let apps = try #require(found["apps"] as? [[String: Any]])
        #expect(apps.compactMap { $0["id"] as? String } == ["org.example.orders"])
        #expect(apps.compactMap { $0["deletes"] as? [String] } == [[data, absent]])

        let elsewhere = try await check(["--apps", directory.file("none")])
        #expect(elsewhere.status == 0 && !elsewhere.output.contains("org.example.orders  /no/orders"))
        unlink(directory.file("apps/photos.json"))
        try directory.write(#"{"masked": true}"#, to: "apps/till.json")
        let text = try await check(#"{"sharedDeviceMode": true}"#)
        #expect(text.status == 0 && text.output.contains("/apps/till.json"), "\(text.errors)")
        let masks = try object(try await check(["--json"]))["masks"] as? [String]
        #expect(masks?.count == 1 && masks?.first?.hasSuffix("/apps/till.json") == true)
    }
}
