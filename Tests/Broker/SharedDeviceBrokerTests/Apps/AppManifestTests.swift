import Basics
import BrokerCore
import Foundation
import Glibc
import NotifyCenterTestKit
import Testing

@testable import DeviceConfiguration

@Suite("App manifests")
struct AppManifestTests {
    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory() }

    private func manifest(_ text: String) throws -> AppManifest {
        try AppManifest(json: Data(text.utf8), file: "orders.json")
    }

    private func failure(_ text: String) -> ManagedConfigurationError? {
        #expect(throws: ManagedConfigurationError.self, "\(text)") { try manifest(text) }
    }

    @Test("all keys are read, and absent optional keys have their defaults")
    func keys() throws {
        let all = try manifest(
            #"""
            {"id": "org.example.orders-2_x", "executable": "/no/such/orders", "user": "root", "busName": "org.example.orders",
             "stores": ["orders database", "photos"], "sharedDeviceModeSupported": false, "store": 1,
             "allowedUsers": {"users": ["ada"], "groups": ["nurses"]}}
            """#
        )
        let wanted = AppManifest(
            identifier: "org.example.orders-2_x",
            identity: .init(executable: "/no/such/orders", user: 0),
            busName: "org.example.orders",
            stores: ["orders database", "photos"],
            supportsSharedDeviceMode: false,
            allowedUsers: AllowedUsers(users: ["ada"], groups: ["nurses"]),
            unknownKeys: ["store"]
        )
        #expect(all == wanted && all.warnings.map(\.description) == ["\"store\" means nothing; is “stores” meant?"])
        let least = try manifest(#"{"id": "org.example.orders", "executable": "/no/such/orders"}"#)
        let identity = AppManifest.Identity(executable: "/no/such/orders")
        let defaults = AppManifest(identifier: "org.example.orders", identity: identity, supportsSharedDeviceMode: true)
        #expect(least == defaults)
    }

    @Test("symbolic links in the executable's path are resolved")
    func links() throws {
        try directory.write("", to: "orders-1.2")
        #expect(symlink(directory.file("orders-1.2"), directory.file("orders")) == 0)
        let real = try #require(realpath(directory.file("orders-1.2"), nil))
        defer { free(real) }
        let read = try manifest(#"{"id": "a.b", "executable": "\#(directory.path)/./orders"}"#)
        #expect(read.identity.executable == String(cString: real))
    }

    /// A manifest with the required keys, each with this JSON value; `nil` leaves the key out.
    private func text(_ key: String, _ value: String?) -> String {
        var values = ["id": #""a.b""#, "executable": #""/a/b""#]
        values[key] = value
        let members = values.map { "\"\($0)\": \($1)" }
        return "{\(members.joined(separator: ", "))}"
    }

    @Test("an error names the file, the key and the remedy")
    func mistakes() throws {
        let mistakes: [(key: String, values: [String?], remedy: String)] = [
            ("id", [nil], "org.example.orders"),
            ("id", [#""orders""#, #""a..b""#, #"".a.b""#, #""a.b (c)""#, #""a.\u00e9""#], "two or more parts"),
            ("id", ["7"], "a string"), ("executable", [nil], "absolute path"),
            ("executable", [#""orders""#, #""/usr/bin/""#, #""/usr/bin/a\u0000b""#], "/usr/bin/orders"),
            ("executable", [#"["/a/b"]"#], "a string"), ("user", [#""no such user""#], "make the user"),
            ("user", ["-1", "4294967295", "true"], "user's name"),
            ("busName", [#""orders""#, #"":1.7""#, #""""#], "org.example.orders"),
            ("stores", [#""photos""#], "an array of strings"), ("stores", [#"["photos", "photos"]"#], "once"),
            ("allowedUsers", [#"{"user": ["ada"]}"#], "users and groups"),
            ("allowedUsers", ["[]"], "an object of arrays"),
            ("stores", [#"[" "]"#], "orders database"), ("sharedDeviceModeSupported", ["1"], "true"),
        ]
        for (key, values, remedy) in mistakes {
            for value in values {
                let error = try #require(failure(text(key, value)))
                #expect(error.key == key && error.description.hasPrefix("orders.json: \"\(key)\": "), "\(error)")
                #expect(error.remedy.contains(remedy), "\(error)")
            }
        }
    }

    // S9, DT-1 to DT-4
    @Test("an app may be identified by unit, AppArmor profile, snap or Flatpak")
    func kinds() throws {
        for (text, identity) in [
            (#""unit": "orders.service""#, AppManifest.Identity(unit: "orders.service")),
            (#""appArmor": "orders""#, .init(appArmor: "orders")),
            (#""snap": "orders.app""#, .init(appArmor: "snap.orders.app")),
            (#""flatpak": "org.example.Orders""#, .init(flatpak: "org.example.Orders")),
            (
                #""unit": "a.service", "executable": "/no/a", "user": 4711"#,
                .init(executable: "/no/a", user: 4711, unit: "a.service")
            ),
        ] {
            #expect(try manifest(#"{"id": "a.b", \#(text)}"#).identity == identity)
        }
        for text in [
            #""snap": "orders.app", "appArmor": "stricter""#, #""user": 7"#,
            #""unit": "two words", "executable": "/a""#, #""flatpak": """#,
        ] {
            #expect(failure(#"{"id": "a.b", \#(text)}"#)?.code == .invalidValue, "\(text)")
        }
    }

    @Test("content that is not a JSON object, or has a key twice, is an error")
    func noObject() {
        for text in ["", "[]", "<plist/>", "{", #"{"id": "a.b", "executable": "/a/b",}"#] {
            let error = failure(text)
            #expect(error?.code == .invalidJSON && error?.remedy.contains(#"{"id": "org.example.orders", …}"#) == true)
        }
        let twice = failure(#"{"id": "a.b", "executable": "/a/b", "user": "ada", "user": "grace"}"#)
        #expect(twice?.code == .contradiction && twice?.remedy == "leave one")
        #expect(twice?.message.hasPrefix("“user” is there twice") == true)
    }
}

@Suite("The directory of app manifests", .timeLimit(.minutes(5)))
struct AppManifestDirectoryTests {
    private let directory: TemporaryDirectory
    private let apps: AppManifestDirectory

    init() throws {
        directory = try TemporaryDirectory()
        apps = AppManifestDirectory(path: directory.file("apps"))
    }

    private func write(_ name: String, _ identifier: String, executable: String = "/no/such/app") throws {
        mkdir(apps.path, 0o755)
        try directory.write(#"{"id": "\#(identifier)", "executable": "\#(executable)"}"#, to: "apps/\(name)")
    }

    private func manifest(_ identifier: String) -> AppManifest {
        AppManifest(identifier: identifier, identity: .init(executable: "/no/such/app"))
    }

    private func firstUpdate(_ kept: [String: Data]) async throws -> AppManifests {
        var updates = try await onceInotifyIsFree { try apps.updates(kept: kept) }.makeAsyncIterator()
        let first = await updates.next()
        return try #require(first)
    }

    @Test("the manifests are next to the configuration by default")
    func place() {
        let paths = [AppManifestDirectory.defaultPath, AppManifestDirectory(path: "/etc/shared-device/apps/").path]
        let places = ["managed.json", "/managed.json"].map { ManagedConfigurationFile(path: $0).appManifestDirectory }
        #expect(paths + places == ["/etc/shared-device/apps", "/etc/shared-device/apps", "./apps", "/apps"])
    }

    @Test("JSON files are read in order of name, and a bad one does not affect the others")
    func load() throws {
        #expect(apps.load() == AppManifests(), "the directory is missing")
        try write("b.json", "org.example.b")
        try write("a.json", "org.example.a")
        try write(".c.json", "org.example.c")
        try write("d.json~", "org.example.d")
        let loaded = apps.load()
        #expect(loaded.manifests == [manifest("org.example.a"), manifest("org.example.b")])
        #expect(loaded.problems.isEmpty && loaded.unknown.isEmpty)
        #expect(loaded.contents.keys.sorted() == ["a.json", "b.json"])
        try write("b.json", "no reverse DNS")
        try write("c.json", "org.example.c")
        mkdir(directory.file("apps/d.json"), 0o755)
        try write("e.json", "org.example.e")
        chmod(directory.file("apps/e.json"), 0o666)
        // Of two manifests with one identifier the first by name counts.
        try write("f.json", "org.example.c", executable: "/no/second")
        let partly = apps.load()
        #expect(partly.manifests == [manifest("org.example.a"), manifest("org.example.c")])
        #expect(partly.problems.map(\.code) == [.invalidValue, .unreadable, .insecure, .contradiction])
        #expect(partly.problems.map(\.file) == ["b", "d", "e", "f"].map { directory.file("apps/\($0).json") })
        #expect(partly.problems.last?.message.contains(directory.file("apps/c.json")) == true)
        // A directory that any user may write to enrols no app.
        chmod(apps.path, 0o777)
        #expect(apps.load().manifests.isEmpty && apps.load().problems.map(\.code) == [.insecure])
    }

    private static let mask = #"{"masked": true}"#

    private var packages: String { directory.file("packages") }
    private var both: AppManifestDirectory { AppManifestDirectory(path: apps.path, packages: packages) }

    /// Writes a manifest of a package.
    private func install(_ name: String, _ identifier: String) throws {
        mkdir(packages, 0o755)
        try directory.write(#"{"id": "\#(identifier)", "executable": "/no/such/app"}"#, to: "packages/\(name)")
    }

    @Test("a manifest replaces or masks the package's manifest of the same name")
    func packageManifests() async throws {
        for app in ["a", "b", "c"] { try install("\(app).json", "org.example.\(app)") }
        try write("b.json", "org.example.b", executable: "/no/other")
        var updates = try await onceInotifyIsFree { try both.updates(quietPeriod: .milliseconds(10)) }
            .makeAsyncIterator()
        let first = try #require(await updates.next())
        #expect(first.manifests.map(\.identity.executable) == ["/no/such/app", "/no/other", "/no/such/app"])
        #expect(first.problems.isEmpty)
        let files = ["a", "b"].map { first.files["org.example.\($0)"] }
        #expect(files == ["\(packages)/a.json", directory.file("apps/b.json")])
        try directory.write(Self.mask, to: "draft")
        rename(directory.file("draft"), directory.file("apps/a.json"))
        let masked = try #require(await updates.next())
        #expect(masked.manifests.map(\.identifier) == ["org.example.b", "org.example.c"])
        #expect(masked.masks == [directory.file("apps/a.json")])
        unlink("\(packages)/c.json")
        #expect(await updates.next()?.manifests.map(\.identifier) == ["org.example.b"], "the package was removed")
        unlink(directory.file("apps/a.json"))
        #expect(await updates.next()?.manifests.map(\.identifier) == ["org.example.a", "org.example.b"])
    }

    @Test("only masked: true is a mask, and a mask alone is no problem")
    func maskAlone() throws {
        mkdir(apps.path, 0o755)
        try directory.write(Self.mask, to: "apps/a.json")
        func check(_ comment: Comment) {
            let loaded = both.load()
            #expect(loaded.manifests.isEmpty && loaded.problems.isEmpty && loaded.unknown.isEmpty, comment)
            #expect(loaded.masks == [directory.file("apps/a.json")], comment)
        }
        check("the mask was first")
        try install("a.json", "org.example.a")
        check("the package was installed")
        unlink("\(packages)/a.json")
        check("the package was removed")
        try install("a.json", "org.example.a")
        for content in ["", " ", "{}", #"{"masked": false}"#, "true"] {
            try directory.write(content, to: "apps/a.json")
            let loaded = both.load()
            #expect(loaded.manifests.isEmpty && loaded.masks.isEmpty && loaded.problems.count == 1, "\(content)")
            #expect(loaded.unknown == [directory.file("apps/a.json")], "\(content)")
        }
    }

    @Test("an administrator's manifest counts before the package's unless it has vanished")
    func duplicateOfPackage() throws {
        try install("a.json", "org.example.x")
        try write("org.example.x.json", "org.example.x", executable: "/no/other")
        let loaded = both.load()
        #expect(loaded.manifests.map(\.identity.executable) == ["/no/other"])
        #expect(loaded.problems.map(\.file) == ["\(packages)/a.json"])
        unlink(directory.file("apps/org.example.x.json"))
        // It is listed, and cannot be opened.
        #expect(symlink(directory.file("nothing"), directory.file("apps/a.json")) == 0)
        let rest = both.load()
        #expect(rest.manifests == [manifest("org.example.x")] && rest.problems.isEmpty)
    }

    @Test("an invalid file keeps its own last valid content, never the package's")
    func invalidReplacement() async throws {
        try install("a.json", "org.example.a")
        var updates = try await onceInotifyIsFree { try both.updates(quietPeriod: .milliseconds(10)) }
            .makeAsyncIterator()
        #expect(await updates.next()?.manifests == [manifest("org.example.a")])
        mkdir(apps.path, 0o755)
        try directory.write("{", to: "apps/a.json")
        let next = try #require(await updates.next())
        #expect(next.manifests.isEmpty && next.unknown == [directory.file("apps/a.json")])
        try write("a.json", "org.example.a", executable: "/no/other")
        let kept = both.load().contents
        try directory.write("", to: "apps/a.json")
        var restarted = try await onceInotifyIsFree { try both.updates(kept: kept) }.makeAsyncIterator()
        let first = try #require(await restarted.next())
        #expect(first.manifests.map(\.identity.executable) == ["/no/other"])
        #expect(first.problems.count == 1 && first.unknown.isEmpty)
    }

    @Test("a directory that cannot be used does not affect the manifests of the other")
    func badDirectory() async throws {
        try install("a.json", "org.example.a")
        try write("b.json", "org.example.b")
        let kept = both.load().contents
        chmod(packages, 0o777)
        let loaded = both.load()
        #expect(loaded.manifests == [manifest("org.example.b")])
        #expect(loaded.problems.map(\.file) == [packages] && loaded.unknown == [packages])
        var updates = try await onceInotifyIsFree { try both.updates(kept: kept) }.makeAsyncIterator()
        let first = try #require(await updates.next())
        #expect(first.manifests == [manifest("org.example.a"), manifest("org.example.b")])
        #expect(first.contents == kept && first.unknown == [packages])
    }

    @Test("a manifest keeps its last valid content while it, its user or directory is bad")
    func kept() async throws {
        try write("a.json", "org.example.a")
        let kept = apps.load().contents
        #expect(kept.keys.sorted() == ["a.json"])
        for content in ["", "{", #"{"id": "org.example.a", "executable": "/no/such/app", "user": "no such user"}"#] {
            try directory.write(content, to: "apps/a.json")
            #expect(apps.load().unknown == [directory.file("apps/a.json")])
            let first = try await firstUpdate(kept)
            #expect(first.manifests == [manifest("org.example.a")])
            #expect(first.problems.count == 1 && first.unknown.isEmpty)
            #expect(first.contents == kept, "the content is kept for the next start, too")
        }
        unlink(directory.file("apps/a.json"))
        #expect(try await firstUpdate(kept) == AppManifests(), "a removed manifest does not keep its content")
        // The content of an unknown user is kept for the next start.
        let unread = [
            "a.json": Data(#"{"id": "org.example.a", "executable": "/no/such/app", "user": "no such user"}"#.utf8)
        ]
        try directory.write("{", to: "apps/a.json")
        let first = try await firstUpdate(unread)
        #expect(first.unknown == [directory.file("apps/a.json")] && first.contents == unread)
        try write("a.json", "org.example.a")
        chmod(apps.path, 0o777)
        let second = try await firstUpdate(kept)
        #expect(second.manifests == [manifest("org.example.a")])
        #expect(second.contents == kept && second.unknown == [apps.path])
    }

    /// Yields the number at the directory's reading of that number. Until then it is also read again after each pause.
    private func reading(_ number: Int, pause: Duration? = nil) async throws -> AsyncStream<Int> {
        let reads = Shared(0)
        return try await onceInotifyIsFree {
            do throws(Problem) {
                return try DirectoryWatcher.updates(of: [directory.path], quietPeriod: .milliseconds(10)) {
                    reads.withLock { reads -> Int? in
                        reads += 1
                        return reads == number ? reads : nil
                    }
                } again: {
                    reads.withLock { $0 } < number ? pause : nil
                }
            } catch {
                throw ManagedConfigurationError.cannotWatch(directory.path, error)
            }
        }
    }

    @Test("a directory is read again if the reader asks, or a file of it was closed")
    func readAgain() async throws {
        var iterator = try await reading(3, pause: .milliseconds(10)).makeAsyncIterator()
        #expect(await iterator.next() == 3)
        try directory.write("", to: "file")
        let updates = try await reading(2)
        let file = open(directory.file("file"), O_RDWR | O_CLOEXEC)
        try #require(file >= 0)
        close(file)
        var afterClosing = updates.makeAsyncIterator()
        #expect(await afterClosing.next() == 2)
    }

    @Test("an app's problems are those of its manifest and of the directory")
    func problemsOfOne() throws {
        try write("a.json", "org.example.a", executable: "a")
        try write("b.json", "org.example.b", executable: "b")
        try directory.write("{", to: "apps/org.example.c.json")
        try write("d.json", "org.example.d")
        func problems(_ app: String) -> [String] {
            apps.load().problems(of: app).told.map { $0.file.split(separator: "/").last.map(String.init) ?? "" }
        }
        #expect(problems("org.example.a") == ["a.json"] && problems("org.example.c") == ["org.example.c.json"])
        #expect(problems("org.example.d") == [] && problems("org.example.e") == ["org.example.c.json"])
        let isRefused = ["org.example.b", "org.example.e"].map { apps.load().problems(of: $0).isRefused }
        #expect(isRefused == [true, false])
        chmod(apps.path, 0o777)
        #expect(problems("org.example.d") == ["apps"])
    }

    @Test("added, changed, broken, repaired and removed manifests are noticed")
    func watch() async throws {
        var updates = try await onceInotifyIsFree { try apps.updates(quietPeriod: .milliseconds(5)) }
            .makeAsyncIterator()
        func wait(_ wanted: AppManifest...) async throws {
            while let update = await updates.next(isolation: #isolation) {
                if update.manifests == wanted, update.problems.isEmpty, update.unknown.isEmpty { return }
            }
            Issue.record("the updates have ended")
        }
        let (a, b) = (manifest("org.example.a"), manifest("org.example.b"))
        try await wait()
        try write("a.json", "org.example.a")
        try await wait(a)
        try write("b.json", "org.example.b")
        try await wait(a, b)

        try directory.write("{", to: "apps/a.json")
        var broken = await updates.next(isolation: #isolation)
        while let update = broken, update.problems.isEmpty { broken = await updates.next(isolation: #isolation) }
        #expect(broken?.manifests == [a, b] && broken?.problems.map(\.code) == [.invalidJSON])
        try write("a.json", "org.example.a2")
        try await wait(manifest("org.example.a2"), b)

        #expect(unlink(directory.file("apps/a.json")) == 0)
        try await wait(b)
    }
}
