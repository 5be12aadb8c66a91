import DeviceConfiguration
import Foundation
import Testing

@Suite("The key “cleanup” of a manifest")
struct CleanupManifestTests {
    private func manifest(
        _ cleanup: String,
        user: String = #", "user": "nobody""#
    ) throws(ManagedConfigurationError) -> AppManifest {
        let text = #"{"id": "org.example.kiosk"\#(user), "cleanup": \#(cleanup)}"#
        return try AppManifest(json: Data(text.utf8), file: "kiosk.json")
    }

    private func refusal(_ cleanup: String, user: String = #", "user": "nobody""#) -> ManagedConfigurationError? {
        do throws(ManagedConfigurationError) {
            _ = try manifest(cleanup, user: user)
            return nil
        } catch {
            return error
        }
    }

    @Test("a manifest names adapter, program, start, and the paths to delete")
    func parts() throws {
        let unit = try manifest(
            #"{"unit": "kiosk.service", "delete": ["/var/lib/kiosk/profile/"], "start": "signed-in"}"#
        )
        let cleanup = try #require(unit.cleanup)
        #expect(cleanup.program == .unit("kiosk.service") && cleanup.delete == ["/var/lib/kiosk/profile"])
        #expect(cleanup.start == .signedIn && cleanup.user.name == "nobody")
        #expect(unit.identity.unit == "shared-device-cleanup@org.example.kiosk.service" && unit.identity.isProof)
        // An identity in the manifest replaces the adapter's default unit.
        let text = #", "user": "nobody", "executable": "/no/such/adapter""#
        let identity = try manifest(#"{"command": ["/bin/true"], "delete": ["/var/lib/kiosk"]}"#, user: text).identity
        #expect(identity.unit == nil && identity.executable == "/no/such/adapter")
        let preset = try manifest(
            #"{"preset": "chromium", "data": "/var/lib/kiosk/web", "command": ["/usr/bin/chromium", "--kiosk"], "start": "always"}"#
        )
        #expect(preset.cleanup?.delete == ["/var/lib/kiosk/web"])
        let command = try #require(preset.cleanup?.command)
        #expect(command.first == "/usr/bin/chromium" && command.last == "--kiosk")
        #expect(command.contains("--user-data-dir=/var/lib/kiosk/web/profile"))
        // A byte order mark in front of the text is ignored.
        let marked = "\u{FEFF}" + #"{"id": "org.example.kiosk", "executable": "/usr/bin/kiosk"}"#
        #expect(try AppManifest(json: Data(marked.utf8), file: "kiosk.json").identifier == "org.example.kiosk")
    }

    @Test("an app that cleans up itself is stopped by its identity and has no adapter")
    func appItself() throws {
        let cleanup = #"{"by": "app", "delete": ["/var/lib/orders"]}"#
        let user = #", "user": "nobody""#
        for (identity, program) in [
            (#", "executable": "/no/such/orders""#, .processes("/no/such/orders")),
            (#", "flatpak": "org.example.Orders""#, .flatpak("org.example.Orders")),
            (#", "unit": "orders.service", "executable": "/no/such/orders""#, .unit("orders.service")),
        ] as [(String, AppCleanup.Program)] {
            let manifest = try manifest(cleanup, user: user + identity)
            #expect(manifest.cleanup?.program == program && manifest.adapter == nil)
        }
        let web = #"{"by": "app", "preset": "chromium", "data": "/var/lib/orders/web"}"#
        #expect(
            try manifest(web, user: user + #", "unit": "orders.service""#).cleanup?.delete == ["/var/lib/orders/web"]
        )
        for (cleanup, identity, reason) in [
            (cleanup, "", "does not say which processes"),
            (#"{"by": "app", "unit": "a.service", "delete": ["/var/lib/a"]}"#, #", "unit": "a.service""#, "by itself"),
            (
                #"{"by": "app", "delete": ["/var/lib/a"], "start": "always"}"#, #", "executable": "/a""#,
                "another program starts"
            ),
            (#"{"by": "app", "delete": ["/home/ada/a"]}"#, #", "executable": "/a""#, "home directory of another user"),
            (#"{"by": "me", "delete": ["/var/lib/a"]}"#, #", "executable": "/a""#, "adapter, app"),
        ] {
            let refusal = refusal(cleanup, user: user + identity)
            #expect(refusal?.description.contains(reason) == true, "\(refusal?.description ?? "taken")")
        }
    }

    @Test("a Flatpak's data and its /tmp outside the sandbox are deleted")
    func flatpak() throws {
        let cleanup = try #require(try manifest(#"{"preset": "flatpak", "flatpak": "org.example.Orders"}"#).cleanup)
        let home = try #require(cleanup.user.home)
        #expect(
            cleanup.delete == [
                "\(home)/.var/app/org.example.Orders",
                "/run/user/\(cleanup.user.number)/.flatpak/org.example.Orders",
                "\(home)/.cache/.flatpak/org.example.Orders",
            ]
        )
        // A manifest may name paths that a later version of the preset also has. The preset's paths count towards the
        // limit.
        func named(_ paths: [String]) throws -> [String]? {
            let list = paths.map { #""\#($0)""# }.joined(separator: ", ")
            let text = #"{"preset": "flatpak", "flatpak": "org.example.Orders", "delete": [\#(list)]}"#
            return try manifest(text).cleanup?.delete
        }
        #expect(try named(cleanup.delete) == cleanup.delete)
        let more = (1..<64).map { "/var/lib/orders/\($0)" }
        #expect(try named(more) == cleanup.delete + more)
        #expect(throws: (any Error).self) { try named(more + ["/var/lib/orders/64"]) }
    }

    @Test("a faulty manifest is refused with a remedy")
    func refused() throws {
        for (cleanup, words) in [
            (#"{"delete": ["/var/lib/kiosk"]}"#, "does not say what is stopped"),
            (#"{"unit": "a.service", "command": ["/bin/true"], "delete": ["/var/lib/kiosk"]}"#, "several ways"),
            (#"{"unit": "kiosk.slice", "delete": ["/var/lib/kiosk"]}"#, "no service"),
            (#"{"unit": "kiosk.service"}"#, "nothing is deleted"),
            (#"{"unit": "kiosk.service", "delte": ["/var/lib/kiosk"]}"#, "“delte” in it means nothing"),
            (#"{"unit": "kiosk.service", "delete": "/var/lib/kiosk"}"#, "“delete” in it is of the wrong type"),
            (#"{"unit": "kiosk.service", "delete": ["/var/lib/kiosk", "/var/lib/kiosk/"]}"#, "there twice"),
            (
                #"{"unit": "kiosk.service", "delete": ["/var/lib/kiosk"], "start": "never"}"#,
                "nobody, signed-in, always"
            ),
            (#"{"command": [], "delete": ["/var/lib/kiosk"]}"#, "no program"),
            (#"{"command": ["sleep", "9"], "delete": ["/var/lib/kiosk"]}"#, "“sleep” is no absolute path; write /"),
            (#"{"command": ["./no-such"], "delete": ["/var/lib/kiosk"]}"#, "“./no-such” is no absolute path"),
            (#"{"unit": "kiosk.service", "delete": ["~/star/*"]}"#, "“~/star/*” has a pattern in it"),
            (#"{"unit": "kiosk.service", "delete": ["/srv/kiosk/?"]}"#, "has a pattern in it"),
            (#"{"unit": "kiosk.service", "delete": ["/srv/kiosk/[ab]"]}"#, "has a pattern in it"),
            (#"{"unit": "kiosk.service", "delete": ["$HOME/kiosk"]}"#, "“$HOME/kiosk” has a variable in it"),
            (#"{"command": ["/usr/bin/x"], "preset": "firefox", "data": "/srv/kiosk*"}"#, "has a pattern in it"),
            (#"{"command": ["/usr/bin/chromium"], "preset": "chromium"}"#, "needs \"data\""),
            (#"{"command": ["/usr/bin/x"], "preset": "netscape", "data": "/var/lib/kiosk"}"#, "chromium, firefox"),
            (
                #"{"command": ["/usr/bin/chromium"], "preset": "chromium", "data": "/var/lib/kiosk/a-name-that-is-much-too-long-for-the-path-of-a-socket"}"#,
                "makes a socket"
            ),
            (#"{"flatpak": "org x", "delete": ["/var/lib/kiosk"]}"#, "no Flatpak's id"),
            (#""kiosk.service""#, "the value is a text; write an object"),
        ] {
            let error = refusal(cleanup)
            let text = error?.description ?? "taken"
            #expect(error?.key == "cleanup" && text.contains(words), "\(cleanup): \(text)")
        }
        let noUser = try #require(refusal(#"{"unit": "kiosk.service", "delete": ["/var/lib/kiosk"]}"#, user: ""))
        #expect("\(noUser)".contains("\"user\""))
    }

    @Test("only paths of the app's own data are accepted, and refusals have a reason")
    func paths() throws {
        for (path, meant) in [
            ("/var/lib/kiosk", "/var/lib/kiosk"), ("~/.config/chromium", "/home/kiosk/.config/chromium"),
            ("/home/kiosk/x", "/home/kiosk/x"), ("/srv/kiosk/data", "/srv/kiosk/data"), ("/run/kiosk", "/run/kiosk"),
            ("/tmp/kiosk", "/tmp/kiosk"), ("/var/lib/kiosk/..x", "/var/lib/kiosk/..x"),
        ] { #expect(try CleanupPath.checked(path, home: "/home/kiosk") == meant, "\(path)") }
        for path in [
            "//", "/var", "/var/lib", "/home", "/home/kiosk", "/home/kiosk/", "/home",
            "\((try? SystemUser(number: 0))?.home ?? "/home/root")/x", "~/", "/usr/share/kiosk", "/proc/1", "/sys/x",
            "/dev/shm", "/var/tmp", "/run", "/run/user", "relative/path", "", "/var/lib/../x", "/var/lib/kiosk/./x",
            "/var/lib//kiosk", "/var/lib/shared-device", "/var/lib/shared-device/db",
            "/var/lib/shared-device-cleanup/x", "/var/lib/systemd/x", "/lib/kiosk", "/boot/x", "/media", "/mnt", "/opt",
            "~/../grace", "/var/lib/\0", "/" + String(repeating: "x", count: 5000),
        ] { #expect(throws: ValueFlaw.self, "\(path)") { try CleanupPath.checked(path, home: "/home/kiosk") } }
        for (path, reason) in [
            ("/", "is the whole file system"), ("~", "is the home directory as a whole"),
            ("/home/grace/notes", "the home directory of another user"), ("/tmp", "other programs use that"),
            ("/etc/kiosk", "is not the app's"),
        ] {
            let flaw = #expect(throws: ValueFlaw.self, "\(path)") {
                try CleanupPath.checked(path, home: "/home/kiosk")
            }
            #expect(flaw?.description.contains(reason) == true, "\(path)")
        }
        // A path that must survive is neither deleted nor inside a deleted directory.
        for path in ["/srv/kiosk", "/srv/kiosk/state", "/srv/kiosk/state/x"] {
            #expect(throws: ValueFlaw.self, "\(path)") {
                try CleanupPath.checked(path, home: nil, keeping: ["/srv/kiosk/state"])
            }
        }
        // Paths are compared by bytes, so that combining marks hide nothing.
        #expect(throws: ValueFlaw.self) { try CleanupPath.checked("/etc/\u{301}kiosk", home: nil) }
        #expect(throws: ValueFlaw.self) { try CleanupPath.checked("/home/e\u{301}/notes", home: "/home/\u{E9}") }
        #expect(CleanupPath.isSame("/home/ada/\u{301}x", orBelow: "/home/ada"))
    }

    @Test("each preset keeps all its files below the directory", arguments: AdapterPreset.allCases)
    func presets(preset: AdapterPreset) {
        let data = "/srv/kiosk data/ü"
        for argument in preset.arguments(data: data) where argument.contains("/") {
            let path = argument.split(separator: "=", maxSplits: 1).last.map(String.init) ?? ""
            #expect(path.hasPrefix(data) || path == "file:///srv/kiosk%20data/%C3%BC/profile", "\(argument)")
        }
        let paths = preset.directories(data: data) + AdapterEnvironment.variables(data: data).values
        #expect(paths.filter { !$0.hasPrefix(data + "/") } == [])
    }
}
