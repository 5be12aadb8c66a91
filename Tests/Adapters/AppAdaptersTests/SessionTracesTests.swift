import DeviceConfiguration
import Foundation
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
@_spi(Extensions) import SharedDeviceTestKit
import Testing

@testable import AppAdapters

/// A home directory with Ada's traces. Every test names its own environment, so that it does not touch the developer's
/// traces.
struct TraceHome {
    static let marker = "trace-of-ada-4711"
    let path: String
    private let directory: TemporaryDirectory?
    var environment: [String: String] {
        ["HOME": path, "PATH": "/usr/bin:/bin", "XDG_DATA_HOME": "", "XDG_CACHE_HOME": "", "XDG_CONFIG_HOME": ""]
    }

    /// - Parameter path: an app's directory; `nil` for a temporary one.
    init(_ path: String? = nil) throws {
        directory = path == nil ? try TemporaryDirectory("traces") : nil
        self.path = path ?? directory?.path ?? ""
        for file in [
            ".local/share/recently-used.xbel", ".local/share/RecentDocuments/letter.desktop",
            ".local/share/kactivitymanagerd/resources/database", "Downloads/letter.pdf",
            "Downloads/more/\(Self.marker).pdf", ".local/share/Trash/files/letter.txt",
            ".local/share/Trash/info/letter.txt.trashinfo", ".cache/thumbnails/normal/1.png",
            ".thumbnails/normal/2.png", ".local/share/keyrings/login.keyring", ".local/share/kwalletd/kdewallet.kwl",
            ".bash_history", ".viminfo", ".xsession-errors.old", ".local/share/fish/fish_history",
        ] { try write(file) }
        // Neither is a trace.
        try write(".bashrc", "kept")
        try write("Documents/letter.txt", "kept")
    }

    func write(_ file: String, _ text: String = marker) throws { try writeFile(text, to: "\(path)/\(file)") }

    func has(_ file: String) -> Bool { exists("\(path)/\(file)") }

    func findings() throws -> [ByteSearch.Finding] { try ByteSearch([Marker(Self.marker)]).run(under: path).findings }

    /// The traces of this home, for a user number that has no trash on any other file system.
    func traces(_ more: [String: String] = [:]) -> SessionTraces {
        SessionTraces(
            environment: environment.merging(more) { $1 },
            user: SystemUser(number: 3_999_999_999, group: 0, name: nil, home: nil),
            keeping: "\(path)/.local/state/traces"
        )
    }
}

@Suite("Traces of a session in files")
struct SessionTracesTests {
    private static let inFiles: [SessionTrace] = [.recentFiles, .downloads, .trash, .thumbnails, .history, .keyring]

    @Test("each kind is counted without changes, then removed completely")
    func files() async throws {
        let home = try TraceHome()
        succeed(symlink("/etc", "\(home.path)/Downloads/etc"))
        let before = try home.findings().count
        let traces = home.traces(["DBUS_SESSION_BUS_ADDRESS": ""])
        #expect(try await traces.look(for: .thumbnails) == .traces("2 files, \(TraceHome.marker.utf8.count * 2) bytes"))
        #expect(try home.findings().count == before)
        for trace in Self.inFiles {
            guard case .traces = try await traces.remove(trace) else {
                Issue.record("nothing was there of \(trace)")
                continue
            }
            #expect(try await traces.look(for: trace) == .nothing)
            #expect(try await traces.remove(trace) == .nothing, "once more")
        }
        #expect(try home.findings() == [])
        #expect(home.has("Documents/letter.txt") && home.has(".bashrc"))
        #expect(home.has("Downloads"), "programs expect it")
        #expect(exists("/etc/passwd"), "no link is followed")
    }

    @Test("sparse files whose sizes overflow are counted with the maximum, and deleted")
    func sparseFiles() async throws {
        // A tmpfs accepts files of any length. Elsewhere the files are shorter, and the sum is checked separately.
        let memory = "/dev/shm/traces-\(UUID().uuidString)"
        let directory = try TemporaryDirectory("traces")
        let place = mkdir(memory, 0o700) == 0 ? memory : "\(directory.path)/Downloads"
        defer { try? FileManager.default.removeItem(atPath: place) }
        if place != memory { succeed(mkdir(place, 0o700)) }
        var expected = UserDataDirectory.Removed()
        for name in ["1", "2", "3"] {
            let file = "\(place)/\(name)"
            #expect(FileManager.default.createFile(atPath: file, contents: nil))
            var one = UserDataDirectory.Removed()
            (one.files, one.bytes) = (1, .max)
            while truncate(file, off_t(one.bytes)) != 0 { one.bytes /= 2 }
            expected.add(one)
        }
        #expect(TraceFiles.count(at: [place]) == expected)
        #expect(try await Deletion(paths: [place], user: geteuid()).run() == expected)
        #expect(TraceFiles.count(at: [place]) == UserDataDirectory.Removed())
        #expect(exists(place), "it is empty, and stays")
        var sum = UserDataDirectory.Removed()
        sum.bytes = .max
        sum.add(sum)
        #expect(sum.bytes == .max)
    }

    @Test(
        "the home directory as the download directory means the default directory",
        arguments: ["$HOME/", "$HOME", "$HOME//"]
    )
    func noDownloads(named: String) async throws {
        let home = try TraceHome()
        try home.write(".config/user-dirs.dirs", "XDG_DOWNLOAD_DIR=\"\(named)\"\n")
        _ = try await home.traces(["HOME": home.path, "XDG_DOWNLOAD_DIR": "\(home.path)/"]).remove(.downloads)
        #expect(!home.has("Downloads/letter.pdf") && home.has("Documents/letter.txt"))
    }

    @Test("a linked home directory is followed; a link below it is not")
    func linkedHome() async throws {
        let directory = try TemporaryDirectory("traces")
        let home = try TraceHome("\(directory.path)/var-home")
        succeed(symlink(home.path, "\(directory.path)/home"))
        let named = home.traces([
            "HOME": "\(directory.path)/home", "XDG_DATA_HOME": "\(directory.path)/home/.local/share",
        ])
        for trace in Self.inFiles where trace != .keyring { _ = try await named.remove(trace) }
        #expect(try home.findings().allSatisfy { $0.path.contains("keyring") || $0.path.contains("kwallet") })
    }

    @Test("an unlistable keyring folder is an error, and a missing one is empty")
    func unreadableKeyrings() throws {
        let directory = try TemporaryDirectory("keyrings")
        #expect(try Keyring.others(in: ["\(directory.path)/none"]) == [])
        try writeFile("", to: "\(directory.path)/file")
        let failure = #expect(throws: AdapterFailure.self) { try Keyring.others(in: ["\(directory.path)/file"]) }
        #expect(failure?.description.contains("\(directory.path)/file") == true)
    }

    @Test("the places follow the XDG and user directories and the mounted disks")
    func places() throws {
        let directory = try TemporaryDirectory("mount \(UUID().uuidString)")
        makeDirectory("\(directory.path)/.Trash-1000")
        let mount = directory.path.replacing(" ", with: "\\040")
        // A FUSE mount, for which the user chooses the device name.
        let served = try TemporaryDirectory("served")
        makeDirectory("\(served.path)/.Trash-1000")
        let places = TracePlaces(
            home: "/home/kiosk",
            environment: [
                "XDG_DATA_HOME": "/data/kiosk", "XDG_CACHE_HOME": "relative", "XDG_DOWNLOAD_DIR": "/data/incoming",
            ],
            userDirectories:
                "# comment\nXDG_DESKTOP_DIR=\"$HOME/Desktop\"\nXDG_DOWNLOAD_DIR=\"$HOME/Téléchargements\"\n",
            mounts: "/dev/sda1 / ext4 rw 0 0\n/dev/sdb1 \(mount) vfat rw 0 0\nserver:/x \(mount) nfs rw 0 0\n"
                + "/dev/sdc1 \(served.path) fuse.served rw 0 0\n",
            user: 1000
        )
        #expect(places.paths(of: .downloads) == ["/data/incoming", "/home/kiosk/Téléchargements"])
        #expect(places.paths(of: .thumbnails) == ["/home/kiosk/.cache/thumbnails", "/home/kiosk/.thumbnails"])
        #expect(places.paths(of: .trash) == ["/data/kiosk/Trash", "\(directory.path)/.Trash-1000"])
        #expect(places.paths(of: .recentFiles).first == "/data/kiosk/recently-used.xbel")
        #expect(places.paths(of: .history).contains("/home/kiosk/.bash_history"))
        #expect(places.paths(of: .history).contains("/data/kiosk/fish/fish_history"))
    }
}

@Suite("shared-device session-traces")
struct SessionTracesCommandTests {
    private static let identifier = "org.example.session-traces"
    /// The steps that the tests leave out, because they would touch the developer's own data.
    private static let without = "clipboard,keyring,print-queue,trash"

    private func command(_ arguments: [String], home: TraceHome) async throws -> (status: Int32, output: String) {
        let command = try ChildProcess(
            ChildProcess.built("shared-device"),
            ["session-traces"] + arguments,
            environment: home.environment
        )
        let status = await command.exitStatus()
        return (status, (command.lines + [command.errorText]).joined(separator: "\n"))
    }

    @Test("--dry-run lists traces, --now removes them, and disabled steps are skipped")
    func once() async throws {
        let home = try TraceHome()
        let before = try home.findings()
        let look = try await command(["--dry-run", "--without", Self.without], home: home)
        #expect(look.status == 0 && look.output.contains("thumbnails    2 files"), "\(look.output)")
        #expect(look.output.contains("would go") && !look.output.contains("trash"), "\(look.output)")
        #expect(try home.findings() == before)
        let now = try await command(["--now", "--without", Self.without + ",downloads"], home: home)
        #expect(now.status == 0 && now.output.contains("recent-files  3 files"), "\(now.output)")
        let left = try home.findings().map(\.path)
        #expect(left.contains("Downloads/letter.pdf") && left.contains(".local/share/Trash/files/letter.txt"))
        #expect(!left.contains { $0.contains("thumbnails") || $0.contains("recently") })
    }

    @Test("a failed step exits with 74 after the other steps; wrong usage with 64")
    func failing() async throws {
        let home = try TraceHome()
        try FileManager.default.removeItem(atPath: "\(home.path)/Downloads")
        succeed(symlink("/etc", "\(home.path)/Downloads"))
        let now = try await command(["--now", "--without", Self.without], home: home)
        #expect(now.status == EX_IOERR && now.output.contains("downloads     FAILED: "), "\(now.output)")
        #expect(try !home.findings().contains { $0.path.contains("thumbnails") })
        for wrong in [["--without", "clipbord"], ["--now", "--dry-run"], ["--app", "x/y", "--now"]] {
            let outcome = try await command(wrong, home: home)
            #expect(outcome.status == EX_USAGE, "\(wrong): \(outcome)")
        }
    }

    /// Signs in Ada on a device whose app removes traces, and plants her traces.
    private func begin() async throws -> (device: TestDevice, app: DeviceApp, home: TraceHome) {
        let app = TestApp(
            Self.identifier,
            executable: ChildProcess.built("shared-device"),
            arguments: ["session-traces", "--app", Self.identifier, "--without", Self.without],
            environment: [
                "HOME": "{home}/person", "XDG_DATA_HOME": "{home}/person/.local/share", "XDG_CACHE_HOME": "",
                "XDG_CONFIG_HOME": "", "XDG_DOWNLOAD_DIR": "",
            ]
        )
        let device = try await TestDevice(apps: [app], cleanup: .strict)
        try await device.signIn("ada")
        try await device.waitUntilRunning()
        let running = try device.app(Self.identifier)
        return (device, running, try TraceHome("\(running.home)/person"))
    }

    @Test("no trace of Ada is left after her sign-out, and the receipt lists the steps", .timeLimit(.minutes(5)))
    func takesPart() async throws {
        let (device, app, home) = try await begin()
        for place in ["Trash", "keyrings", "kwalletd"] {
            try FileManager.default.removeItem(atPath: "\(home.path)/.local/share/\(place)")
        }
        let report = try await device.signOut(deadline: .seconds(120))
        try report.requireClean(of: Marker(TraceHome.marker))
        let summary = try #require(report.apps.first?.summary)
        #expect(
            summary.contains("4 steps: recent-files (3 files, ") && summary.contains("history (4 files, "),
            "\(summary)"
        )
        try await eventually("the app logs the step") { app.errorText.contains("session-traces: thumbnails: 2 files") }
    }

    @Test("a failed step blocks the receipt; after a kill the next start continues")
    func failedStep() async throws {
        let (device, app, home) = try await begin()
        let downloads = "\(home.path)/Downloads"
        try FileManager.default.moveItem(atPath: downloads, toPath: "\(home.path)/elsewhere")
        succeed(symlink("\(home.path)/elsewhere", downloads))
        try await device.beginSignOut()
        try await eventually("the step fails") { app.errorText.contains("downloads: FAILED: could not delete") }
        #expect(try device.report().apps.first?.isClean == false)
        try await eventually("the later step still runs") {
            try !home.findings().contains { $0.path.contains("thumbnails") }
        }
        try await app.kill()
        try FileManager.default.removeItem(atPath: downloads)
        try FileManager.default.moveItem(atPath: "\(home.path)/elsewhere", toPath: downloads)
        try app.start()
        try await device.waitUntilClean()
        #expect(try !home.findings().contains { $0.path.contains("Downloads") })
    }
}
