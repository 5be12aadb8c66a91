import DeviceConfiguration
import Foundation
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
@_spi(Extensions) import SharedDeviceTestKit
import Testing

@testable import AppAdapters

@Suite("shared-device-cleanup: the adapter that a manifest describes")
struct CleanupProgramTests {
    private static let identifier = Kiosk.identifier

    @Test(
        "the command and the deletion run as the app's user, not as root",
        .enabled(if: geteuid() == 0, "only root becomes another user")
    )
    func asRoot() async throws {
        let kiosk = try await Kiosk()
        let user: UInt32 = 65534
        try kiosk.enrol(
            #"{"command": ["/bin/sh", "-c", "id -u >\#(kiosk.data)/user; exec sleep 1000"], "delete": ["\#(kiosk.data)"], "start": "always"}"#,
            user: user
        )
        succeed(chown(kiosk.data, user, user))
        try "marker-of-ada".write(toFile: "\(kiosk.data)/secret", atomically: true, encoding: .utf8)
        succeed(chown("\(kiosk.data)/secret", user, user))
        try await kiosk.endSession()
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
        "the targets of an earlier manifest are stopped and deleted",
        .enabled(if: geteuid() == 0, "only root becomes another user")
    )
    func changedManifest() async throws {
        let kiosk = try await Kiosk()
        let user: UInt32 = 65534
        succeed(chown(kiosk.data, user, user))
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

    /// The line of `/proc/PID/status` of a process that blocks no signal.
    private static let noSignals = "SigBlk:\t0000000000000000"

    @Test("a launched command blocks no signal")
    func signalsOfLauncher() async throws {
        let launch = try ChildProcess(
            ChildProcess.built("shared-device-cleanup"),
            ["launch", "--user", "\(geteuid())", "--", "grep", "SigBlk", "/proc/self/status"]
        )
        #expect(await launch.exitStatus() == 0, "\(launch.errorText)")
        #expect(launch.lines == [Self.noSignals])
    }

    @Test(
        "a command of another user keeps none of root's groups",
        .enabled(if: geteuid() == 0, "only root becomes another user")
    )
    func groupsOfLauncher() async throws {
        let program = ChildProcess.built("shared-device-cleanup")
        let launch = try ChildProcess(
            "/usr/bin/setpriv",
            ["--groups", "0,4,5", program, "launch", "--user", "65534", "--", "grep", "Groups", "/proc/self/status"]
        )
        #expect(await launch.exitStatus() == 0, "\(launch.errorText)")
        let group = try SystemUser(number: 65534).group
        #expect(launch.lines.map { $0.trimmingCharacters(in: .whitespaces) } == ["Groups:\t\(group)"])
    }

    @Test(
        "the error for a directory that the user cannot create names the remedy",
        .enabled(if: geteuid() == 0, "only root becomes another user")
    )
    func directoryOfRoot() async throws {
        let directory = try TemporaryDirectory("roots")
        let data = "\(directory.path)/data"
        func launch() async throws -> String {
            let launch = try ChildProcess(
                ChildProcess.built("shared-device-cleanup"),
                ["launch", "--user", "65534", "--directory", data, "--directory", "\(data)/home", "--", "/bin/true"]
            )
            #expect(await launch.exitStatus() == EX_CANTCREAT)
            return launch.errorText
        }
        let name = try SystemUser(number: 65534).name ?? "65534"
        let remedy = "install -d -m 700 -o \(name) \(data)"
        succeed(chmod(directory.path, 0o755))
        #expect(
            try await launch()
                == "shared-device-cleanup: could not make \(data) as \(name): Permission denied. Make it: \(remedy)"
        )
        succeed(mkdir(data, 0o755))
        let text = try await launch()
        #expect(text.contains("could not make \(data)/home as \(name): Permission denied. Give \(data) to"), "\(text)")
        #expect(text.hasSuffix(remedy), "\(text)")
    }

    @Test("the adapter reports faults of its app's manifest and ignores other manifests")
    func otherManifests() async throws {
        let kiosk = try await Kiosk()
        let other = #"{"id": "org.example.other", "executable": "other"}"#
        try other.write(toFile: "\(kiosk.manifests)/a.json", atomically: true, encoding: .utf8)
        try "{".write(toFile: "\(kiosk.manifests)/b.json", atomically: true, encoding: .utf8)
        let bad = #"{"command": ["/bin/sleep", "1000"], "delete": ["/var/lib/kiosk/*"]}"#
        try kiosk.enrol(bad, user: geteuid() == 0 ? 65534 : geteuid())
        let adapter = try kiosk.adapter()
        try await eventually("it says what it waits for", within: .seconds(60)) {
            adapter.errorText.contains("the manifest of \(Self.identifier) is refused (above); waiting for a valid one")
        }
        #expect(adapter.errorText.contains("kiosk.json"), "\(adapter.errorText)")
        #expect(!adapter.errorText.contains("a.json") && !adapter.errorText.contains("b.json"), "\(adapter.errorText)")
        adapter.send(SIGTERM)
        #expect(await adapter.exitStatus(within: .seconds(60)) == 0, "\(adapter.errorText)")
    }

    @Test("systemctl controls a unit; a missing unit is an error that says so")
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
        // The unit ignores the request to stop and is killed.
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

    @Test(
        "root on the system bus refuses manifests that root does not own",
        .enabled(if: geteuid() == 0, "only root"),
        arguments: ["owner", "group", "directory"]
    )
    func foreignManifest(flaw: String) async throws {
        let directory = try TemporaryDirectory("manifests")
        let manifest = "\(directory.path)/apps/kiosk.json"
        #expect(chmod(directory.path, 0o755) == 0 && mkdir("\(directory.path)/apps", 0o755) == 0)
        try #"{"id": "\#(Self.identifier)", "user": 65534, "cleanup": {"unit": "a.service", "delete": ["/srv/a"]}}"#
            .write(toFile: manifest, atomically: true, encoding: .utf8)
        switch flaw {
        case "owner": succeed(chown(manifest, 65534, 0))
        case "group": #expect(chown(manifest, 0, 65534) == 0 && chmod(manifest, 0o664) == 0)
        default: succeed(chown("\(directory.path)/apps", 65534, 0))
        }
        let adapter = try ChildProcess(
            ChildProcess.built("shared-device-cleanup"),
            [Self.identifier, "--apps", "\(directory.path)/apps", "--state", "\(directory.path)/state"],
            environment: ["DBUS_SYSTEM_BUS_ADDRESS": "unix:path=/nonexistent"]
        )
        try await eventually("it refuses the manifest", within: .seconds(60)) {
            adapter.errorText.contains("65534") && adapter.errorText.contains("chown root:root")
                && adapter.errorText.contains("no manifest of \(Self.identifier)")
        }
        adapter.send(SIGTERM)
        #expect(await adapter.exitStatus(within: .seconds(60)) == 0)
        let bus = try PrivateBus()
        let enforcement = try ChildProcess(
            ChildProcess.built("shared-device-cleanup"),
            ["enforce", "--apps", "\(directory.path)/apps", "--state", "\(directory.path)/state"],
            environment: ["DBUS_SYSTEM_BUS_ADDRESS": bus.address]
        )
        try await eventually("the enforcement refuses it, too", within: .seconds(60)) {
            enforcement.errorText.contains("65534") && enforcement.errorText.contains("chown root:root")
        }
        enforcement.send(SIGTERM)
        #expect(await enforcement.exitStatus(within: .seconds(60)) == 0)
    }

    @Test(
        "an unreadable user database is an error of the manifest, not a missing user",
        .enabled(if: Mounts.areAllowed, "this user may not mount")
    )
    func usersUnknown() async throws {
        let kiosk = try await Kiosk()
        try kiosk.enrol(#"{"command": ["/bin/sleep", "1000"], "delete": ["\#(kiosk.data)"]}"#, user: "ada")
        let program = ChildProcess.built("shared-device-cleanup")
        // A user database that this user may not read.
        let script = #"""
            printf 'passwd: files\n' >"$1/nsswitch.conf"; : >"$1/passwd"; chmod 0 "$1/passwd"
            mount --bind "$1/nsswitch.conf" /etc/nsswitch.conf && mount --bind "$1/passwd" /etc/passwd &&
            exec setpriv --reuid=65534 --regid=65534 --clear-groups "$2" \#(Self.identifier) --bus unix:path=/none --apps "$3" --state "$1/state"
            """#
        let words = ["--mount", "sh", "-c", script, "sh", kiosk.directory.path, program, kiosk.manifests]
        succeed(chmod(kiosk.device.directory, 0o755))
        let adapter = try ChildProcess("unshare", words)
        try await eventually("the problem is told", within: .seconds(60)) {
            adapter.errorText.contains("databases of users do not answer for “ada”")
        }
        #expect(!adapter.errorText.contains("no user “ada”"))
        adapter.send(SIGTERM)
        #expect(await adapter.exitStatus(within: .seconds(60)) == 0)
    }

    @Test(
        "the content of an unreadable directory is deleted",
        .enabled(if: geteuid() == 0, "only root becomes another user")
    )
    func unreadableParent() async throws {
        let directory = try TemporaryDirectory("unreadable")
        let parent = "\(directory.path)/parent"
        #expect(chmod(directory.path, 0o755) == 0 && mkdir(parent, 0o700) == 0 && mkdir("\(parent)/data", 0o700) == 0)
        for name in ["data/secret", "file"] {
            try "ada".write(toFile: "\(parent)/\(name)", atomically: false, encoding: .utf8)
        }
        for name in ["data/secret", "file", "data"] { succeed(chown("\(parent)/\(name)", 65534, 65534)) }
        succeed(chmod(parent, 0o733))
        let remove = try ChildProcess(
            ChildProcess.built("shared-device-cleanup"),
            ["remove", "--user", "65534", "--", "\(parent)/data", "\(parent)/file"]
        )
        #expect(await remove.exitStatus() == 0, "\(remove.lines)")
        #expect(remove.lines == ["2 6"])
        #expect(try FileManager.default.subpathsOfDirectory(atPath: parent) == ["data"])
    }
}
