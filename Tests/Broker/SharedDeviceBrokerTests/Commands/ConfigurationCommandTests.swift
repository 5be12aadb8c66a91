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

    @Test("a valid file is printed with all values, their meaning and warnings")
    func valid() async throws {
        let outcome = try await check(
            #"{"sharedDeviceMode": true, "cleanupPolicy": "strict", "shiftEnds": ["06:00", "14:00"], "AppList": 1}"#
        )
        #expect(outcome.status == 0 && outcome.errors == "")
        let lines = outcome.output.split(separator: "\n").map { $0.split(separator: " ").joined(separator: " ") }
        #expect(lines.first == "The device is shared. The file is valid.")
        for line in [
            "sharedDeviceMode true", "cleanupPolicy strict", "requiresEnrolment -", "shiftEnds 06:00, 14:00",
            "organization -", "Enable_SSO_On_All_ManagedApps 0",
            "warning: \"AppList\" means nothing",
            "At most one account is signed in on this device, for all of its apps.",
            "Only apps with a manifest take part, because the cleanup policy is strict.",
            "The user is signed out at 06:00 and 14:00 each day, in local time.",
        ] {
            #expect(lines.contains(line), "\(line)")
        }
    }

    @Test("warnings come first, and make --strict exit with 65")
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

    @Test("all errors are reported at once, including those of manifests")
    func severalMistakes() async throws {
        succeedMaking(directory.file("apps"))
        try directory.write("{", to: "apps/till.json")
        let text =
            #"{"sharedDeviceMode": 1, "cleanupPolicy": "strictest", "shiftEnds": ["25:00"], "requiresJoin": true}"#
        let outcome = try await check(text)
        #expect(outcome.status == 65)
        let lines = outcome.errors.split(separator: "\n")
        #expect(lines.count == 4, "\(outcome.errors)")
        for word in ["sharedDeviceMode", "cleanupPolicy", "shiftEnds", "till.json"] {
            #expect(lines.count { $0.contains(word) } == 1, "\(word)")
        }
        let problems = try object(try await check(text, "--json"))["problems"] as? [[String: Any]]
        #expect(problems?.count == 4)
    }

    private func succeedMaking(_ path: String) { #expect(mkdir(path, 0o755) == 0) }

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
        #expect(outcome.status == 0 && outcome.errors == "")
        let lines = outcome.output.split(separator: "\n").map { $0.split(separator: " ").joined(separator: " ") }
        for line in [
            "identity oidc", "oidcIssuer https://login.example.com", "oidcLoopbackPorts 8400, 8401",
            "oidcEndpoints jwks_uri https://login.example.com/keys", "remoteCheckInterval 300",
            "https://login.example.com says who people are.",
            "A browser comes back to 127.0.0.1, port 8400 or 8401.",
        ] {
            #expect(lines.contains(line), "\(line)")
        }
    }

    private struct Told: Decodable {
        struct Settings: Decodable, Equatable {
            let sharedDeviceMode: Bool
            let cleanupPolicy: String
            let cleanupTimeout: Double
            let organization: String?
        }

        struct Warning: Decodable { let key: String }

        let valid: Bool
        let mode: String
        let settings: Settings
        let warnings: [Warning]
    }

    @Test("--json prints the same content for programs")
    func json() async throws {
        let outcome = try await check(#"{"sharedDeviceMode": true, "cleanupTimeout": 2.5, "x": 1}"#, "--json")
        #expect(outcome.status == 0)
        let told = try JSONDecoder().decode(Told.self, from: Data(outcome.output.utf8))
        #expect(told.valid && told.mode == "shared" && told.warnings.map(\.key) == ["x"])
        let settings = Told.Settings(
            sharedDeviceMode: true,
            cleanupPolicy: "advisory",
            cleanupTimeout: 2.5,
            organization: nil
        )
        #expect(told.settings == settings && outcome.output.contains("\"organization\""))
    }

    @Test("check refers an iOS profile to convert, whose output is a valid file")
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
    }

    @Test("convert exits with 65 for an invalid profile, and with 66 for a missing file")
    func noConversion() async throws {
        let absent = try await Program.sharedDevice.run(["configuration", "convert", directory.file("managed")])
        #expect(absent.status == 66)
        try directory.write("<plist><array/></plist>", to: "managed")
        let broken = try await Program.sharedDevice.run(["configuration", "convert", directory.file("managed")])
        #expect(broken.status == 65 && broken.output == "")
        #expect(broken.errors.contains("its outermost element is not a <dict>"))
    }

    @Test("each error names the type found and the type expected")
    func allMistakes() async throws {
        let text = #"{"sharedDeviceMode": "true", "requiresJoin": 1, "shiftEnds": [6], "cleanupPolicy": "lax"}"#
        let outcome = try await check(text)
        #expect(outcome.status == 65)
        for part in [
            "\"sharedDeviceMode\": the value is a text; write true or false, without quotation marks, or",
            "\"requiresJoin\": the value is a number; write true or false, or",
            "\"shiftEnds\": there is a number in the value; write an array of strings, or",
            "\"cleanupPolicy\": it is “lax”",
        ] {
            #expect(outcome.errors.contains(part), "\(part): \(outcome.errors)")
        }
        let json = try object(try await check(text, "--json"))
        #expect((json["problems"] as? [[String: Any]])?.count == 4)
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
        try FileManager.default.createDirectory(atPath: directory.file("apps"), withIntermediateDirectories: true)
        try directory.write(manifest, to: "apps/microsoft.json")
        let documented = try await check(provider)
        #expect(documented.status == 0 && !documented.output.contains("oidcScopes:"), "\(documented)")
        try directory.write(manifest.replacingOccurrences(of: #", "email""#, with: ""), to: "apps/microsoft.json")
        let lacking = try await check(provider)
        #expect(lacking.output.contains("lacks email of oidcScopes in the manifest of com.microsoft.identity.broker1"))
    }

    @Test("an error exits with 65 and goes to stderr, and with --json to stdout too")
    func invalid() async throws {
        let plain = try await check(#"{"sharedDeviceMode": 1}"#)
        #expect(plain.status == 65 && plain.output == "")
        let wanted =
            "shared-device: \(directory.file("managed")): \"sharedDeviceMode\": the value is a number; write true or false, or "
        #expect(plain.errors.hasPrefix(wanted))

        let json = try await check(["--json"])
        #expect(json.status == 65 && json.errors == plain.errors)
        let object = try object(json)
        let problems = try #require(object["problems"] as? [[String: Any]])
        let texts = problems.map { "\($0["code"] ?? "") \($0["key"] ?? "")" }
        #expect(object["valid"] as? Bool == false && texts == ["wrongType sharedDeviceMode"])
    }

    @Test("a missing file exits with 66")
    func missing() async throws {
        let outcome = try await check([])
        let error = "shared-device: there is no file \(directory.file("managed"))\n"
        #expect(outcome.status == 66 && outcome.errors == error)
    }

    @Test("the apps next to the file are listed, and a bad manifest exits with 65")
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

        mkdir(directory.file("data"), 0o755)
        // Manifests write deleted paths in the kernel's form.
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
        let object = try object(bad)
        #expect(object["valid"] as? Bool == false)
        let apps = try #require(object["apps"] as? [[String: Any]])
        #expect(apps.compactMap { $0["id"] as? String } == ["org.example.orders"])
        #expect(apps.compactMap { $0["deletes"] as? [String] } == [[data, absent]])

        let elsewhere = try await check(["--apps", directory.file("none")])
        #expect(elsewhere.status == 0 && !elsewhere.output.contains("org.example.orders  /no/orders"))
    }
}
