import FleetStage
import Foundation
import Glibc
import MQTTClient
@_spi(Extensions) import NotifyCenterTestKit
import Testing

/// `shared-device fleet enrol` on a device, and `fleet certify` and `fleet revoke` at the authority.
@Suite("Enrolling a device in a fleet")
struct FleetEnrolTests {
    private static func words(_ name: String, _ stage: FleetStage, _ more: String...) -> [String] {
        [
            "enrol", name, "--fleet", "clinic", "--host", "localhost", "--port", "\(stage.port)", "--directory",
            stage.path("device"),
        ] + more
    }

    private static func write(_ lines: [String], _ name: String, _ stage: FleetStage) throws -> String {
        try (lines.joined(separator: "\n") + "\n").write(toFile: stage.path(name), atomically: true, encoding: .utf8)
        return stage.path(name)
    }

    private static func rights(_ path: String) throws -> Int {
        try FileManager.default.attributesOfItem(atPath: path)[.posixPermissions] as? Int ?? 0
    }

    @Test("FL-10: one command on each side enrols a device, and the agent connects")
    func bothAtOnce() async throws {
        let stage = try await FleetStage()
        try await stage.startController()
        let device = try stage.start(Self.words("ward-1", stage, "--contact-timeout", "3600"))
        try await device.line { $0 == "-----END CERTIFICATE REQUEST-----" }
        let words = ["certify", stage.path("pki"), "ward-1", "--request", "-", "--add", "--group", "wards"]
        let authority = try stage.start(words)
        for line in device.lines { try authority.write(line) }
        #expect(await authority.exitStatus() == 0, "\(authority.errorText)")
        for line in authority.lines { try device.write(line) }
        // Neither side has closed its output yet.
        #expect(await device.exitStatus() == 0, "\(device.errorText)")
        #expect(device.errorText.contains("systemctl enable --now shared-device-agent"), "\(device.errorText)")

        #expect(try Self.rights(stage.path("device/fleet/ward-1.key")) == 0o600)
        #expect(!FileManager.default.fileExists(atPath: stage.path("pki/ward-1.key")), "the key stays on the device")
        let left = try FileManager.default.contentsOfDirectory(atPath: stage.path("device/fleet")).sorted()
        #expect(left == ["authority.pem", "ward-1.key", "ward-1.pem"])
        // The paths of `startAgent`.
        try FileManager.default.createDirectory(atPath: stage.path("ward-1-state"), withIntermediateDirectories: true)
        rename(stage.path("device/fleet-agent.json"), stage.path("ward-1.json"))
        let agent = try await stage.startAgent("ward-1", bus: stage.bus.address)
        // Its broker is missing, which it reports.
        try await eventually("the device has reported") {
            try await stage.fleet("devices").lines.contains {
                $0.hasPrefix("ward-1") && $0.contains("wards") && !$0.contains("never")
            }
        }
        withExtendedLifetime(agent) {}
    }

    @Test("keys are private whatever the umask, and agents can read theirs", arguments: ["000", "777"])
    func umask(_ umask: String) async throws {
        let stage = try await FleetStage()
        func run(_ words: [String]) async throws {
            let command = ["-c", "umask \(umask); exec \"$0\" fleet \"$@\"", ChildProcess.built("shared-device")]
            let process = try ChildProcess("sh", command + words)
            #expect(await process.exitStatus() == 0, "\(process.errorText)")
        }
        let folder = stage.path("new/pki")
        try await run(["authority", folder])
        try await run(["certify", folder, "ward-1"])
        try await run(Self.words("ward-2", stage, "--request-only"))
        for made in [folder, stage.path("new")] { #expect(try Self.rights(made) == 0o700, "\(made)") }
        for file in ["authority.key", "authority.pem", "settings", "index.txt", "lock", "ward-1.key", "ward-1.pem"] {
            #expect(try Self.rights("\(folder)/\(file)") == 0o600, "\(file)")
        }
        let device = stage.path("device")
        let rights = try ["", "/fleet", "/fleet/ward-2.key"].map { try Self.rights(device + $0) }
        #expect(rights == [0o755, 0o755, 0o600])
    }

    /// Makes a request on a device, and certifies it at the authority.
    ///
    /// - Returns: the file of the device's request, and the lines that the authority prints.
    private static func request(_ name: String, on stage: FleetStage) async throws -> (file: String, answer: [String]) {
        let request = try await stage.succeed(words(name, stage, "--request-only"))
        let file = try write(request, "\(name).csr", stage)
        return (file, try await stage.succeed("certify", stage.path("pki"), name, "--request", file))
    }

    /// Installs the authority's lines on the device.
    private static func enrol(
        _ name: String,
        _ answer: [String],
        _ stage: FleetStage
    ) async throws -> FleetStage.Outcome {
        try await stage.fleet(words(name, stage, "--certificate", write(answer, "answer", stage)))
    }

    @Test("two steps with files enrol and renew a device; other certificates are refused")
    func twoSteps() async throws {
        let stage = try await FleetStage()
        let (pki, other) = (stage.path("pki"), stage.path("other"))
        func content(_ name: String) throws -> Data { try Data(contentsOf: URL(filePath: stage.path(name))) }
        var (file, right, keys) = ("", [String](), Set<Data>())
        for _ in 0..<2 {
            (file, right) = try await Self.request("ward-1", on: stage)
            let enrolled = try await Self.enrol("ward-1", right, stage)
            #expect(enrolled.status == 0, "\(enrolled)")
            keys.insert(try content("device/fleet/ward-1.key"))
        }
        #expect(keys.count == 1, "a renewal keeps the key")
        func certificate(_ name: String) throws -> [String] {
            try [name, "authority"].map { try String(contentsOfFile: "\(pki)/\($0).pem", encoding: .utf8) }
        }
        try await stage.succeed("certify", pki, "ward-3")
        try await stage.succeed("authority", other)
        let before = try content("device/fleet/ward-1.pem")
        var wrong: [(lines: [String], reason: String)] = [
            (try await stage.succeed("certify", pki, "ward-2", "--request", file), "another name"),
            (try certificate("ward-3"), "another name"),
            (try await stage.succeed("certify", other, "ward-1", "--request", file), "another authority"),
            (["nothing"], "CERTIFICATE"), (Array(right.prefix(4)), "CERTIFICATE"),
        ]
        // The right name with another key.
        unlink("\(pki)/ward-1.key")
        try await stage.succeed("certify", pki, "ward-1")
        wrong.append((try certificate("ward-1"), "another key"))
        for (lines, reason) in wrong {
            let outcome = try await Self.enrol("ward-1", lines, stage)
            #expect(outcome.status == EX_DATAERR && outcome.errors.contains(reason), "\(reason): \(outcome)")
        }
        #expect(try content("device/fleet/ward-1.pem") == before)
    }

    @Test("FL-10: a key that others could read, or a folder they can change, is not used")
    func othersRights() async throws {
        let stage = try await FleetStage()
        func refuses(_ commands: [[String]], _ remedy: String) async throws {
            for words in commands {
                let outcome = try await stage.fleet(words)
                #expect(outcome.status == EX_NOPERM && outcome.lines.isEmpty, "\(words): \(outcome)")
                #expect(outcome.errors.contains(remedy), "\(words): \(outcome)")
            }
        }
        let request = Self.words("ward-1", stage, "--request-only")
        try await stage.succeed(request)
        chmod(stage.path("device/fleet/ward-1.key"), 0o640)
        try await refuses([request], "users other than its owner")
        let (folder, pki) = (stage.path("others"), stage.path("pki"))
        let (key, uses) = ("\(pki)/authority.key", [["certify", pki, "x"], ["revoke", pki, "localhost"]])
        #expect(try Self.rights(key) == 0o600)
        chmod(key, 0o604)
        try await refuses(uses, "chmod 600")
        chmod(key, 0o600)
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: false)
        for rights: mode_t in [0o777, 0o770, 0o1777] {
            for path in [folder, pki] { chmod(path, rights) }
            try await refuses([["authority", folder]], "chmod 700 \(folder)")
            #expect(try FileManager.default.contentsOfDirectory(atPath: folder).isEmpty)
            // An existing authority there is not used either.
            try await refuses(uses, "chmod 700")
        }
        chmod(folder, 0o755)
        try await stage.succeed("authority", folder)
        #expect(try Self.rights(folder) == 0o755, "it is left as it is")
    }

    @Test("reserved names are refused on both sides")
    func names() async throws {
        let stage = try await FleetStage()
        let own = URL(filePath: stage.path("pki/authority.pem"))
        let before = try Data(contentsOf: own)
        for name in ["A", "a/b", "+", "a b", "ü", ""] {
            #expect(try await stage.fleet(["certify", stage.path("pki"), "--", name]).status == EX_DATAERR, "\(name)")
            let words = Self.words("x", stage).map { $0 == "x" ? name : $0 }
            #expect(try await stage.fleet(words).status == EX_DATAERR, "\(name)")
        }
        // A certificate of this name would replace the authority's own.
        #expect(try await stage.fleet(Self.words("authority", stage)).status == EX_USAGE)
        for more in [[], ["--server"]] {
            let outcome = try await stage.fleet(["certify", stage.path("pki"), "authority"] + more)
            #expect(outcome.status == EX_DATAERR, "\(outcome)")
        }
        #expect(try Data(contentsOf: own) == before)
        // An agent of this name could send orders to all devices.
        let controller = try await stage.fleet(Self.words("controller", stage))
        #expect(controller.status == EX_USAGE && controller.errors.contains("--controller"), "\(controller)")
        #expect(!FileManager.default.fileExists(atPath: stage.path("device")))
    }

    @Test("FL-10: a revocation covers all certificates of a name, including renewed ones")
    func revocation() async throws {
        let stage = try await FleetStage(enrolling: ["a"])
        let first = stage.files("a")
        let old = stage.path("old.pem")
        try FileManager.default.copyItem(atPath: first.certificate, toPath: old)
        _ = try await Self.request("a", on: stage)
        try await stage.succeed("revoke", stage.path("pki"), "a")
        // The server reads the list when it starts.
        try await stage.killEngine()
        try await stage.startEngine()
        let client = try stage.client("a") {
            $0.certificates = .init(authority: first.authority, certificate: old, key: first.key)
        }
        try await eventually("the first one is refused") { client.losses.count >= 2 }
        #expect(!client.isConnected)
        try await eventually("it is told that the certificate is the reason") {
            client.losses.contains { if case .untrusted = $0.reason { true } else { false } }
        }
        #expect(try await stage.fleet("revoke", stage.path("pki"), "a").status == EX_NOINPUT)
        // Without a name the list is renewed.
        try await stage.succeed("revoke", stage.path("pki"))
    }

    /// By certificate number: whether each is valid (`V`) or revoked (`R`), and its name.
    private static func certificates(_ folder: String) throws -> [String: String] {
        let lines = try String(contentsOfFile: folder + "/index.txt", encoding: .utf8).split(separator: "\n")
        let fields = lines.map { $0.split(separator: "\t", omittingEmptySubsequences: false) }
        let named = fields.map { (String($0[3]), "\($0[0]) \($0[5].dropFirst(4))") }
        return Dictionary(named) { "\($0), \($1)" }
    }

    @Test("a revocation finds the right certificate by its number, or stops with an error")
    func digits() async throws {
        let stage = try await FleetStage()
        for isOld in [false, true] {
            let folder = stage.path("new-\(isOld)")
            try await stage.succeed("authority", folder)
            try await stage.succeed("certify", folder, "localhost", "--server")
            try await stage.succeed("certify", folder, "ward-9")
            if isOld {
                // The layout of older versions.
                for number in ["1000", "1001"] { rename("\(folder)/issued/\(number).pem", "\(folder)/\(number).pem") }
                rmdir(folder + "/issued")
            }
            // The number of ward-9's certificate, then the number that the new certificate itself gets, then the
            // revocation.
            for name in ["1001", "1003"] { try await stage.succeed("certify", folder, name) }
            try await stage.succeed("revoke", folder, "ward-9")
            let expected = ["1000": "V localhost", "1001": "R ward-9", "1002": "V 1001", "1003": "V 1003"]
            #expect(try Self.certificates(folder) == expected)
        }
        // A certificate file with other content.
        let folder = stage.path("pki")
        for name in ["ward-8", "ward-9"] { try await stage.succeed("certify", folder, name) }
        // Older versions left the folder like this if a device had the number as its name. The copy by name is missing,
        // too.
        let (lost, other) = ("\(folder)/issued/1003.pem", "\(folder)/issued/1002.pem")
        let certificate = try Data(contentsOf: URL(filePath: lost))
        try Data(contentsOf: URL(filePath: other)).write(to: URL(filePath: lost))
        unlink(folder + "/ward-9.pem")
        let before = try Self.certificates(folder)
        let outcome = try await stage.fleet("revoke", folder, "ward-8", "ward-9")
        #expect(outcome.status == EX_NOINPUT && outcome.errors.contains(lost), "\(outcome)")
        #expect(try Self.certificates(folder) == before)
        // The remedy in the message works.
        try certificate.write(to: URL(filePath: lost))
        try await stage.succeed("revoke", folder, "ward-8", "ward-9")
        #expect(try Self.certificates(folder).values.filter { $0.hasPrefix("R") }.count == 2)
    }

    @Test("an authority is created once and can be used concurrently")
    func authority() async throws {
        let stage = try await FleetStage()
        #expect(try await stage.fleet("authority", stage.path("pki")).status == EX_CANTCREAT)
        #expect(try await stage.fleet("certify", stage.path("none"), "a").status == EX_NOINPUT)
        try await withThrowingTaskGroup(of: Void.self) { group in
            for index in 0..<6 {
                group.addTask { _ = try await stage.succeed("certify", stage.path("pki"), "d-\(index)") }
            }
            try await group.waitForAll()
        }
        #expect(try Self.certificates(stage.path("pki")).count == 8)
    }
}
