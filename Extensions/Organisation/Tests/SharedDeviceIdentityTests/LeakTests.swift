import DBus
import Foundation
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import TestProviders
import Testing

@Suite("Secrets that only provider, device and browser may know")
struct LeakTests {
    /// The secrets that the provider has used so far, with their kinds, and the device's own.
    private func secrets(_ device: WholeDevice) async throws -> [(kind: String, text: String)] {
        let lines = try await device.test.page("secrets").split(separator: "\n").map { $0.split(separator: " ") }
        return try lines.map { (String(try #require($0.first)), String(try #require($0.last))) }
            + [("client secret", FaultyProvider.secret), ("encoded client secret", "s%26cret")]
    }

    /// The files below a directory that contain the text in their content or name.
    private func files(with text: String, below directory: String) throws -> [String] {
        let bytes = Data(text.utf8)
        let names = try FileManager.default.subpathsOfDirectory(atPath: directory)
        try #require(names.contains("shared-device.sqlite"), "\(names)")
        return names.filter { name in
            name.contains(text) || FileManager.default.contents(atPath: "\(directory)/\(name)")?.range(of: bytes) != nil
        }
    }

    /// - Parameter kinds: kinds of secrets that the provider must have used by now.
    private func check(
        _ device: WholeDevice,
        _ moment: String,
        kinds: [String] = []
    ) async throws {
        let known = try await secrets(device)
        #expect(kinds.allSatisfy { kind in known.contains { $0.kind == kind } }, "\(known.map(\.kind))")
        for (kind, text) in known {
            // The database, its write-ahead log, and all other files of the broker.
            #expect(try files(with: text, below: device.state) == [], "\(kind), \(moment)")
            #expect(!device.log.contains(text), "\(kind) in a log, \(moment)")
            for program in WholeDevice.Program.allCases {
                let process = "/proc/\(try device.process(program).identifier)"
                for file in ["cmdline", "environ"] {
                    let content = try #require(FileManager.default.contents(atPath: "\(process)/\(file)"))
                    #expect(!content.isEmpty && content.range(of: Data(text.utf8)) == nil, "\(kind) in \(file)")
                }
            }
        }
    }

    @Test("no secret is in a file of the broker, a log, an argument or a variable")
    func nowhere() async throws {
        let device = try await WholeDevice(fault: "leaks")
        try await device.signIn()
        try await check(device, "signed in")
        let token = try await device.token()
        #expect(try await secrets(device).contains { $0.text == token })
        let kinds = ["code", "state", "nonce", "verifier", "access-token", "refresh-token", "id-token"]
        try await check(device, "after a refresh", kinds: kinds)
        // Failures are logged in most detail.
        try await device.kill(.identity)
        _ = try? await device.token()
        try await device.start(.identity)
        try await device.signOut()
        try await eventually("the end at the provider") { try await device.test.page("ended").hasPrefix("end-session") }
        try await check(device, "after the end")
    }

    @Test("no secret leaks in a device-code sign-in and two deliveries of a logout token")
    func codeAndLogout() async throws {
        let device = try await WholeDevice(fault: "backchannel-sub-only.leaks")
        try await device.signInByCode()
        try await check(device, "signed in", kinds: ["device-code", "user-code", "refresh-token"])
        let token = try await device.test.page("logout-token")
        #expect(try await device.report(logout: token).hasPrefix("HTTP/1.1 200"))
        #expect(try await device.account() == nil, "the answer comes after the sign-out")
        // The refused request is logged.
        #expect(try await device.report(logout: token).hasPrefix("HTTP/1.1 400"))
        try await check(device, "after the logout", kinds: ["logout-token"])
    }

    @Test(
        "no secret leaks while an ended session's tokens wait for the provider",
        arguments: ["revoke-denied.leaks", "revoke-away.leaks"]
    )
    func refusedEnd(fault: String) async throws {
        let device = try await WholeDevice(fault: fault)
        try await device.signIn()
        try await device.signOut()
        try await eventually("the log has the outcome") { device.log.contains("revo") || device.log.contains("end") }
        try await check(device, "after the end", kinds: ["refresh-token", "id-token"])
        // Pending tokens are on the disk, sealed, and are read again at the start.
        try await device.kill(.broker)
        try await device.start(.broker)
        try await check(device, "after a restart")
    }

    @Test("no secret leaks through the prompt and its browser")
    func prompt() async throws {
        let device = try await WholeDevice(fault: "leaks.prompt")
        let provider = try await FaultyProvider.shared.value
        // The browser records what other users can see of its process and of its parent process.
        let browser = try device.directory.writeScript(
            "chromium",
            """
            cat /proc/$$/cmdline /proc/$$/environ /proc/$PPID/cmdline >\(device.directory.path)/seen
            exec \(FaultyProvider.folder)/faulty-visitor "$@"
            """
        )
        let prompt = try device.prompt(browser, ["--ca=\(provider.trustAnchors)"])
        #expect(await prompt.exitStatus() == 0, "\(prompt.errorText)")
        let seen = try #require(FileManager.default.contents(atPath: "\(device.directory.path)/seen"))
        #expect(seen.range(of: Data("--user-data-dir".utf8)) != nil)
        let left = try FileManager.default.subpathsOfDirectory(atPath: device.session)
        #expect(left == ["sign-in"])
        for (kind, text) in try await secrets(device) {
            #expect(seen.range(of: Data(text.utf8)) == nil, "\(kind)")
            #expect(!(prompt.lines.joined() + prompt.errorText).contains(text), "\(kind)")
        }
        try await check(device, "after the prompt", kinds: ["code", "state", "nonce", "verifier"])
    }
}
