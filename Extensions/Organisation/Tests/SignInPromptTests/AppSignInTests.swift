import Foundation
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Testing

@Suite("An app's sign-in at the device's own prompt")
struct AppSignInTests {
    private let device: PromptDevice
    private var state: String { "\(device.directory.path)/apps/signing-in" }

    init() async throws { device = try await PromptDevice() }

    /// An app whose prompt is a page that the test opens.
    private func app(_ arguments: String..., program: String? = nil) throws -> ChildProcess {
        // The prompt program prints the address of its page instead of opening it.
        let script = #"exec "\#(device.program)" "$@" --browser none"#
        let prompt = try program ?? device.directory.writeScript("prompt", script)
        return try ChildProcess(
            "setsid",
            ["--wait", ChildProcess.built("sign-in-app"), device.bus.address, state] + arguments,
            environment: device.environment.merging(["SHARED_DEVICE_SIGN_IN": prompt]) { $1 }
        )
    }

    @Test("the app gets its token and no password; only the signed-in user is asked again")
    func page() async throws {
        let first = try app("ada")
        let firstAddress = try await first.pageAddress()
        #expect(try await Page.get(firstAddress).text.contains(#"value="ada""#))
        _ = try await Page.post(firstAddress, "ada", "correct horse ada")
        try await first.line { $0 == "signed in ada with a token" }
        #expect(await first.exitStatus() == 0)
        // The app now counts as holding data of the session.
        let record = try String(contentsOfFile: "\(state)/shared-device-sessions.json", encoding: .utf8)
        #expect(record.contains("ada"))
        let again = try app("nobody", "again")
        let address = try await again.pageAddress()
        #expect(try await Page.get(address).text.contains(#"value="ada""#))
        let refusal = try await Page.post(address, "grace", "correct horse grace").text
        #expect(refusal.contains("another person"), "\(refusal)")
        _ = try await Page.post(address, "ada", "correct horse ada")
        try await again.line { $0 == "signed in ada with a token" }
    }

    @Test("the prompt asks at the app's terminal")
    func terminal() async throws {
        let app = try PromptDevice.atTerminal(
            [ChildProcess.built("sign-in-app"), device.bus.address, state],
            environment: device.environment.merging(["SHARED_DEVICE_SIGN_IN": device.program]) { $1 }
        )
        try await app.line { $0.contains("User name: ") }
        try app.write("grace")
        try await app.line { $0.contains("Password: ") }
        try app.write("correct horse grace")
        try await app.line { $0.contains("signed in grace with a token") }
        #expect(await app.exitStatus() == 0)
    }

    @Test("a cancelled task signs out the user whom it has signed in, and no earlier one")
    func cancelledLate() async throws {
        for isSignedIn in [false, true] { try await cancelLate(isSignedIn: isSignedIn) }
    }

    /// - Parameter isSignedIn: whether Ada is signed in before and is asked again, so that she stays signed in.
    private func cancelLate(isSignedIn: Bool) async throws {
        let go = "\(device.directory.path)/go-\(isSignedIn)"
        if isSignedIn {
            let first = try app()
            _ = try await Page.post(try await first.pageAddress(), "ada", "correct horse ada")
            try await first.line { $0 == "signed in ada with a token" }
        }
        let slow = try device.directory.writeScript(
            "slow",
            #"""
            trap "" TERM
            result=$("\#(device.program)" "$@" --browser none) || exit
            while [ ! -e "\#(go)" ]; do sleep 0.01; done
            echo "$result"
            """#
        )
        let app = try isSignedIn ? app("ada", "again", program: slow) : app(program: slow)
        let address = try await app.pageAddress()
        let page = try await Page.post(address, "ada", "correct horse ada")
        #expect(page.status == 200)
        try await eventually("ada is signed in") { try await device.user() == "ada" }
        try app.write("cancel")
        try await app.line { $0 == "cancelled" }
        _ = FileManager.default.createFile(atPath: go, contents: nil)
        try await app.line { $0 == "error user_canceled" }
        #expect(try await device.user() == (isSignedIn ? "ada" : nil))
    }

    @Test("a missing, silent or lying prompt is an error, and refused scopes are none")
    func brokenPrograms() async throws {
        for (script, code) in [
            ("exit 0", "broker_failed"), ("exit 3", "broker_failed"), ("kill -9 $$", "broker_failed"),
            (#"echo '{"username":"ada","epoch":99}'"#, "current_account_mismatch"),
            (#"echo '{"code":"login_expired","message":"m"}'; exit 75"#, "login_expired"),
            (#"echo '{"code":"of a later version","message":"m"}'; exit 70"#, "broker_failed"),
            ("head -c 100000000 /dev/zero; exit 1", "broker_failed"),
        ] {
            let program = try device.directory.writeScript("broken", script)
            let app = try app(program: program)
            try await app.line { $0 == "error \(code)" }
        }
        let app = try app(program: "/nonexistent/sign-in")
        try await app.line { $0 == "error interaction_required" }
        let strict = try device.directory.writeScript(
            "strict",
            #"""
            case "$*" in
            *--scope=orders.read*) echo '{"code":"declined_scope_error","message":"m"}'; exit 78;;
            esac
            exec "\#(device.program)" "$@" --browser none
            """#
        )
        let asking = try self.app(program: strict)
        _ = try await Page.post(try await asking.pageAddress(), "ada", "correct horse ada")
        try await asking.line { $0 == "signed in ada with a token" }
        #expect(await asking.exitStatus() == 0)
    }

    @Test("no argument or variable has a password; cancelling the task ends the prompt")
    func secrets() async throws {
        let app = try app()
        let address = try await app.pageAddress()
        let path = try #require(address.split(separator: "/").last.map(String.init))
        let wrong = try await Page.post(address, "ada", "a-known-and-wrong-password")
        #expect(wrong.text.contains("is wrong"))
        let ours = try FileManager.default.contentsOfDirectory(atPath: "/proc").compactMap { process -> Data? in
            guard Int(process) != nil,
                let arguments = FileManager.default.contents(atPath: "/proc/\(process)/cmdline"),
                [state, device.bus.address].contains(where: { arguments.range(of: Data($0.utf8)) != nil })
            else { return nil }
            return arguments + (FileManager.default.contents(atPath: "/proc/\(process)/environ") ?? Data())
        }
        #expect(ours.count >= 3, "app, prompt and broker")
        for secret in ["a-known-and-wrong-password", path] {
            #expect(!ours.contains { $0.range(of: Data(secret.utf8)) != nil }, "\(secret)")
        }
        try app.write("cancel")
        try await app.line { $0 == "error user_canceled" }
        #expect(try await Page.get(address).status != 200)
        #expect(try await device.user() == nil)
    }
}
