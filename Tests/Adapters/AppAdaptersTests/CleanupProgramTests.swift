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
    private static let program = ChildProcess.built("shared-device-cleanup")

    @Test("the command and the deletion run as the app's user, not as root", .needsRoot)
    func asRoot() async throws {
        let kiosk = try await Kiosk(owner: Kiosk.user)
        let (secret, user) = ("\(kiosk.data)/secret", "\(kiosk.data)/user")
        try kiosk.enrol(kiosk.cleanup(running: "id -u >\(user); exec sleep 1000"))
        try writeFile("marker-of-ada", to: secret, owner: Kiosk.user)
        try await kiosk.endSession()
        #expect(try await kiosk.part()?.user == Kiosk.user)
        let adapter = try kiosk.adapter()
        try await kiosk.waitUntilFinished()
        try await eventually("the command runs", within: .seconds(60)) {
            (try? String(contentsOfFile: user, encoding: .utf8)) == "\(Kiosk.user)\n"
        }
        #expect(!exists(secret))
        await adapter.end()
    }

    @Test("the targets of an earlier manifest are stopped and deleted", .needsRoot)
    func changedManifest() async throws {
        let kiosk = try await Kiosk(owner: Kiosk.user)
        try kiosk.enrolNumbered()
        let adapter = try kiosk.adapter()
        let command = try await kiosk.process()
        try kiosk.enrol(Kiosk.cleanup(deleting: kiosk.other))
        try await eventually("the earlier target is stopped and deleted", within: .seconds(60)) {
            kill(command, 0) != 0 && !exists("\(kiosk.data)/process")
        }
        await adapter.end()
    }

    @Test("a launched command blocks no signal and keeps none of root's groups")
    func launched() async throws {
        let isRoot = geteuid() == 0
        let user = isRoot ? 65534 : geteuid()
        let command = ["grep", "-E", isRoot ? "SigBlk|Groups" : "SigBlk", "/proc/self/status"]
        let starter = isRoot ? ["setpriv", "--groups", "0,4,5"] : ["env"]
        let words = starter + [Self.program, "launch", "--user", "\(user)", "--"] + command
        let launch = try ChildProcess(words[0], Array(words.dropFirst()))
        #expect(await launch.exitStatus() == 0, "\(launch.errorText)")
        let groups = isRoot ? ["Groups:\t\(try SystemUser(number: user).group)"] : []
        let lines = launch.lines.map { $0.trimmingCharacters(in: .whitespaces) }
        #expect(lines == groups + ["SigBlk:\t0000000000000000"])
    }

    @Test("the error for a directory that the user cannot create names the remedy", .needsRoot)
    func directoryOfRoot() async throws {
        let directory = try TemporaryDirectory("roots")
        let data = "\(directory.path)/data"
        func launch() async throws -> String {
            let launch = try ChildProcess(
                Self.program,
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
        makeDirectory(data, mode: 0o755)
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
        let user = geteuid() == 0 ? Kiosk.user : geteuid()
        try kiosk.enrol(Kiosk.cleanup(deleting: "/home/grace/notes"), user: "\(user)")
        let adapter = try kiosk.adapter()
        try await eventually("the adapter says what it waits for", within: .seconds(60)) {
            adapter.errorText.contains("the manifest of \(Self.identifier) is refused (above); waiting for a valid one")
        }
        try await eventually("adapter and broker say why", within: .seconds(60)) {
            [adapter.errorText, kiosk.device.brokerText].allSatisfy {
                $0.contains("the home directory of another user") && $0.contains("kiosk.json")
            }
        }
        #expect(!adapter.errorText.contains("a.json") && !adapter.errorText.contains("b.json"), "\(adapter.errorText)")
        await adapter.end()
    }

    @Test("systemctl controls a unit; a missing or stuck unit is an error with a remedy")
    func unit() async throws {
        let directory = try TemporaryDirectory("systemctl")
        let script = #"""
            echo "$@" >>\#(directory.path)/calls
            case "$*" in
            *show*missing*) printf 'LoadState=not-found\nActiveState=inactive\nControlGroup=\n' ;;
            *show*stuck*) printf 'LoadState=loaded\nActiveState=active\nControlGroup=\n' ;;
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
        func unit(_ name: String) -> UnitControl {
            UnitControl(name, isSystem: true, patience: patience, systemctl: program)
        }
        let control = unit("kiosk.service")
        #expect(try await !control.isStopped())
        // The unit ignores the request to stop and is killed.
        try await control.stop()
        #expect(try await control.isStopped())
        try await control.start()
        #expect(try await !control.isStopped())
        let calls = try String(contentsOfFile: "\(directory.path)/calls", encoding: .utf8)
        #expect(calls.contains("kill --signal=SIGKILL -- kiosk.service"))
        patience.killed = .milliseconds(100)
        for (name, words) in [
            ("missing.service", ["no such unit", "correct the name in the app's manifest"]),
            ("stuck.service", ["stuck.service", "although it was killed", "restart"]),
        ] {
            let failure = await #expect(throws: AdapterFailure.self) { try await unit(name).stop() }
            let text = failure?.description ?? ""
            #expect(words.allSatisfy { text.contains($0) }, "\(text)")
        }
        #expect(try await !unit("stuck.service").isStopped())
    }

    @Test("an obstacle to a cleanup is in status and log, and is overcome once it is gone", .needsRoot)
    func obstacle() async throws {
        let kiosk = try await Kiosk()
        try kiosk.enrol(Kiosk.cleanup(deleting: kiosk.data))
        try await kiosk.endSession()
        let adapter = try kiosk.adapter()
        func isTold(_ text: String) -> Bool { text.contains(kiosk.data) && text.contains("chown") }
        try await eventually("the status has the obstacle", within: .seconds(60)) { isTold(try await kiosk.status()) }
        try await eventually("the device log has the obstacle", within: .seconds(60)) { isTold(try await kiosk.log()) }
        try await eventually("the adapter log has the obstacle", within: .seconds(60)) { isTold(adapter.errorText) }
        #expect(try await kiosk.owes())
        succeed(chown(kiosk.data, Kiosk.user, Kiosk.user))
        try await kiosk.waitUntilFinished()
        await adapter.end()
    }

    @Test("a reason that ends with a full stop gets no second one")
    func fullStop() {
        let failures = ["it is away", "It is away."].map { AdapterFailure("stop x: \($0)", remedy: "Wait") }
        let texts = ["could not stop x: it is away. Wait", "could not stop x: It is away. Wait"]
        #expect(failures.map(\.description) == texts)
    }

    @Test(
        "root on the system bus refuses manifests that root does not own",
        .needsRoot,
        arguments: ["owner", "group", "directory"]
    )
    func foreignManifest(flaw: String) async throws {
        let directory = try TemporaryDirectory("manifests")
        let apps = "\(directory.path)/apps"
        let manifest = "\(apps)/kiosk.json"
        succeed(chmod(directory.path, 0o755))
        makeDirectory(apps, mode: 0o755)
        try writeFile(
            #"{"id": "\#(Self.identifier)", "user": 65534, "cleanup": {"unit": "a.service", "delete": ["/srv/a"]}}"#,
            to: manifest
        )
        switch flaw {
        case "owner": succeed(chown(manifest, 65534, 0))
        case "group":
            succeed(chown(manifest, 0, 65534))
            succeed(chmod(manifest, 0o664))
        default: succeed(chown(apps, 65534, 0))
        }
        let options = ["--apps", apps, "--state", "\(directory.path)/state"]
        let bus = try PrivateBus()
        let reason = ["65534", "chown root:root"]
        let cases: [(String, String, [String])] = [
            (Self.identifier, "unix:path=/nonexistent", reason + ["no manifest of \(Self.identifier)"]),
            ("enforce", bus.address, reason),
        ]
        for (role, address, words) in cases {
            let variables = ["DBUS_SYSTEM_BUS_ADDRESS": address]
            let process = try ChildProcess(Self.program, [role] + options, environment: variables)
            try await eventually("\(role) refuses the manifest", within: .seconds(60)) {
                words.allSatisfy { process.errorText.contains($0) }
            }
            await process.end()
        }
    }

    @Test("an unreadable user database is an error of the manifest, not a missing user", .needsMounts)
    func usersUnknown() async throws {
        let kiosk = try await Kiosk()
        try kiosk.enrol(Kiosk.cleanup(deleting: kiosk.data), user: #""ada""#)
        // The adapter runs as user 65534, who may not read this user database.
        let script = #"""
            printf 'passwd: files\n' >"$1/nsswitch.conf"; : >"$1/passwd"; chmod 0 "$1/passwd"
            mount --bind "$1/nsswitch.conf" /etc/nsswitch.conf && mount --bind "$1/passwd" /etc/passwd &&
            exec setpriv --reuid=65534 --regid=65534 --clear-groups "$2" \#(Self.identifier) --bus unix:path=/none --apps "$3" --state "$1/state"
            """#
        let words = ["--mount", "sh", "-c", script, "sh", kiosk.directory.path, Self.program, kiosk.manifests]
        succeed(chmod(kiosk.device.directory, 0o755))
        let adapter = try ChildProcess("unshare", words)
        try await eventually("the adapter reports the problem", within: .seconds(60)) {
            adapter.errorText.contains("databases of users do not respond for “ada”")
        }
        #expect(!adapter.errorText.contains("no user “ada”"))
        await adapter.end()
    }

    @Test("the content of an unreadable directory is deleted", .needsRoot)
    func unreadableParent() async throws {
        let directory = try TemporaryDirectory("unreadable")
        let parent = "\(directory.path)/parent"
        succeed(chmod(directory.path, 0o755))
        makeDirectory(parent)
        makeDirectory("\(parent)/data", owner: 65534)
        for name in ["data/secret", "file"] { try writeFile("ada", to: "\(parent)/\(name)", owner: 65534) }
        succeed(chmod(parent, 0o733))
        let words = ["remove", "--user", "65534", "--", "\(parent)/data", "\(parent)/file"]
        let remove = try ChildProcess(Self.program, words)
        #expect(await remove.exitStatus() == 0, "\(remove.lines)")
        #expect(remove.lines == ["2 6"])
        #expect(try FileManager.default.subpathsOfDirectory(atPath: parent) == ["data"])
    }
}
