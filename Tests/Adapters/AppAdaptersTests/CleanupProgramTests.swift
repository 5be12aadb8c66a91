import Foundation
import Glibc
import NotifyCenterTestKit
import SharedDevice
import SharedDeviceTestKit
import Testing

@testable import AppAdapters

@Suite("shared-device-cleanup: the adapter that a manifest describes")
struct CleanupProgramTests {
    private static let identifier = "org.example.kiosk"

    /// A device with a manifest of the kiosk, and the program that follows it.
    private struct Kiosk {
        let device: TestDevice
        let directory: TemporaryDirectory
        var data: String { "\(directory.path)/data" }
        var manifests: String { "\(device.directory)/configuration/apps" }

        init() async throws {
            device = try await TestDevice(cleanup: .strict)
            directory = try TemporaryDirectory("kiosk")
            // The kiosk's user passes through, and owns its data alone.
            #expect(chmod(directory.path, 0o755) == 0 && mkdir("\(directory.path)/data", 0o700) == 0)
        }

        func enrol(_ cleanup: String, user: UInt32) throws {
            let program = ChildProcess.built("shared-device-cleanup")
            let text =
                #"{"id": "\#(identifier)", "user": \#(user), "executable": "\#(program)", "cleanup": \#(cleanup)}"#
            try text.write(toFile: "\(manifests)/kiosk.json", atomically: true, encoding: .utf8)
            #expect(chmod("\(manifests)/kiosk.json", 0o644) == 0)
        }

        func adapter(_ environment: [String: String] = [:]) throws -> ChildProcess {
            try ChildProcess(
                ChildProcess.built("shared-device-cleanup"),
                [identifier, "--bus", device.bus.address, "--apps", manifests, "--state", "\(directory.path)/state"],
                environment: environment
            )
        }

        /// The app's line in the last round.
        func part() async throws -> CleanupReport.App? {
            let report = try await device.application("org.example.control").cleanupReport()
            return report?.apps.first { $0.identifier == identifier }
        }
    }

    @Test(
        "root starts the command and deletes as the app's user; the broker counts the app although no adapter ran during the session",
        .enabled(if: geteuid() == 0, "only root becomes another user")
    )
    func asRoot() async throws {
        let kiosk = try await Kiosk()
        let user: UInt32 = 65534
        try kiosk.enrol(
            #"{"command": ["/bin/sh", "-c", "id -u >\#(kiosk.data)/user; exec sleep 1000"], "delete": ["\#(kiosk.data)"], "start": "always"}"#,
            user: user
        )
        #expect(chown(kiosk.data, user, user) == 0)
        try "marker-of-ada".write(toFile: "\(kiosk.data)/secret", atomically: true, encoding: .utf8)
        #expect(chown("\(kiosk.data)/secret", user, user) == 0)
        try await eventually("the broker has read the manifest", within: .seconds(60)) {
            try await kiosk.device.signIn("ada")
            try await kiosk.device.beginSignOut(copies: false)
            return try await kiosk.part() != nil
        }
        #expect(try await kiosk.part()?.user == user)
        let adapter = try kiosk.adapter()
        try await eventually("the receipt is there", within: .seconds(60)) {
            try await kiosk.part()?.progress == .finished
        }
        try await eventually("the command runs", within: .seconds(60)) {
            (try? String(contentsOfFile: "\(kiosk.data)/user", encoding: .utf8)) == "\(user)\n"
        }
        #expect(!FileManager.default.fileExists(atPath: "\(kiosk.data)/secret"))
        adapter.send(SIGTERM)
        #expect(await adapter.exitStatus(within: .seconds(60)) == 0, "\(adapter.errorText)")
    }

    @Test(
        "what a manifest named before it changed is stopped and deleted, because no later cleanup does it",
        .enabled(if: geteuid() == 0, "only root becomes another user")
    )
    func changedManifest() async throws {
        let kiosk = try await Kiosk()
        let user: UInt32 = 65534
        #expect(chown(kiosk.data, user, user) == 0)
        let other = "\(kiosk.directory.path)/other"
        #expect(mkdir(other, 0o700) == 0 && chown(other, user, user) == 0)
        let command = #"echo $$ >\#(kiosk.data)/process; exec sleep 1000"#
        try kiosk.enrol(
            #"{"command": ["/bin/sh", "-c", "\#(command)"], "delete": ["\#(kiosk.data)"], "start": "always"}"#,
            user: user
        )
        let adapter = try kiosk.adapter()
        let written = { (try? String(contentsOfFile: "\(kiosk.data)/process", encoding: .utf8)) ?? "" }
        try await eventually("the command runs", within: .seconds(60)) { written().hasSuffix("\n") }
        let number = try #require(Int32(written().dropLast()))
        try kiosk.enrol(#"{"command": ["/bin/sleep", "1000"], "delete": ["\#(other)"]}"#, user: user)
        try await eventually("it is stopped and its data is gone", within: .seconds(60)) {
            kill(number, 0) != 0 && !FileManager.default.fileExists(atPath: "\(kiosk.data)/process")
        }
        adapter.send(SIGTERM)
        #expect(await adapter.exitStatus(within: .seconds(60)) == 0, "\(adapter.errorText)")
    }

    @Test(
        "what cannot be deleted is a failure with its path and the remedy, and the debt stays",
        .enabled(if: geteuid() == 0, "only root")
    )
    func notItsOwn() async throws {
        let kiosk = try await Kiosk()
        try kiosk.enrol(#"{"command": ["/bin/sleep", "1000"], "delete": ["\#(kiosk.data)"]}"#, user: 65534)
        let adapter = try kiosk.adapter()
        try await eventually("the failure is on record", within: .seconds(60)) {
            if try await kiosk.part() == nil {
                try await kiosk.device.signIn("ada")
                try await kiosk.device.beginSignOut(copies: false)
            }
            return try await kiosk.part()?.progress == .failed
        }
        let detail = try await kiosk.part()?.detail ?? ""
        #expect(detail.contains(kiosk.data) && detail.contains("chown"), "\(detail)")
        #expect(chown(kiosk.data, 65534, 65534) == 0)
        try await eventually("the next try succeeds", within: .seconds(60)) {
            try await kiosk.part()?.progress == .finished
        }
        adapter.kill()
        await _ = adapter.exitStatus()
    }

    @Test("the unit's adapter asks systemctl; a unit that does not exist is a failure that says so")
    func unit() async throws {
        let directory = try TemporaryDirectory("systemctl")
        let script = #"""
            echo "$@" >>\#(directory.path)/calls
            case "$*" in
            *show*missing*) printf 'LoadState=not-found\nActiveState=inactive\nControlGroup=\n' ;;
            *show*) printf 'LoadState=loaded\nActiveState=%s\nControlGroup=\n' "$(cat \#(directory.path)/active)" ;;
            *stop*) echo deactivating >\#(directory.path)/active ;;
            *kill*) echo inactive >\#(directory.path)/active ;;
            *start*) echo active >\#(directory.path)/active ;;
            esac
            """#
        let program = try directory.writeScript("systemctl", script)
        try "active".write(toFile: "\(directory.path)/active", atomically: true, encoding: .utf8)
        var patience = StopPatience()
        patience.asked = .milliseconds(100)
        let control = UnitControl("kiosk.service", isSystem: true, patience: patience, systemctl: program)
        #expect(try await !control.isStopped())
        // It does not end by itself, and is killed.
        try await control.stop()
        #expect(try await control.isStopped())
        try await control.start()
        #expect(try await !control.isStopped())
        let calls = try String(contentsOfFile: "\(directory.path)/calls", encoding: .utf8)
        #expect(calls.contains("kill --signal=SIGKILL -- kiosk.service"))
        let missing = UnitControl("missing.service", isSystem: true, patience: patience, systemctl: program)
        let failure = await #expect(throws: AdapterFailure.self) { try await missing.stop() }
        #expect(failure?.description.contains("no such unit") == true)
    }
}
