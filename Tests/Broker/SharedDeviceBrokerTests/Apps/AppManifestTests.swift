import Foundation
import Glibc
import NotifyCenterTestKit
import SharedDeviceBroker
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
        do throws(ManagedConfigurationError) {
            _ = try AppManifest(json: Data(text.utf8), file: "orders.json")
            return nil
        } catch {
            return error
        }
    }

    @Test("all keys are read, and absent optional keys have their defaults")
    func keys() throws {
        let all = try manifest(
            #"""
            {"id": "org.example.orders-2_x", "executable": "/no/such/orders", "user": "root", "busName": "org.example.orders",
             "stores": ["orders database", "photos"], "sharedDeviceModeSupported": false, "store": 1}
            """#
        )
        #expect(
            all
                == AppManifest(
                    identifier: "org.example.orders-2_x",
                    identity: .init(executable: "/no/such/orders", user: 0),
                    busName: "org.example.orders",
                    stores: ["orders database", "photos"],
                    supportsSharedDeviceMode: false,
                    unknownKeys: ["store"]
                )
        )
        #expect(all.warnings.map(\.description) == ["\"store\" means nothing; is “stores” meant?"])
        let least = try manifest(#"{"id": "org.example.orders", "executable": "/no/such/orders"}"#)
        #expect(least == AppManifest(identifier: "org.example.orders", identity: .init(executable: "/no/such/orders")))
        #expect(least.supportsSharedDeviceMode)
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

    @Test(
        "an error names the file, the key and the remedy",
        arguments: [
            (#"{"executable": "/a/b"}"#, "id", "org.example.orders"),
            (#"{"id": "a.b"}"#, "executable", "absolute path"),
            (#"{"id": "orders", "executable": "/a/b"}"#, "id", "two or more parts"),
            (#"{"id": "a..b", "executable": "/a/b"}"#, "id", "two or more parts"),
            (#"{"id": ".a.b", "executable": "/a/b"}"#, "id", "two or more parts"),
            (#"{"id": "a.b (c)", "executable": "/a/b"}"#, "id", "two or more parts"),
            (#"{"id": "a.\u00e9", "executable": "/a/b"}"#, "id", "two or more parts"),
            (#"{"id": 7, "executable": "/a/b"}"#, "id", "a string"),
            (#"{"id": "a.b", "executable": "orders"}"#, "executable", "/usr/bin/orders"),
            (#"{"id": "a.b", "executable": "/usr/bin/"}"#, "executable", "/usr/bin/orders"),
            (#"{"id": "a.b", "executable": "/usr/bin/a\u0000b"}"#, "executable", "/usr/bin/orders"),
            (#"{"id": "a.b", "executable": ["/a/b"]}"#, "executable", "a string"),
            (#"{"id": "a.b", "executable": "/a/b", "user": "no such user"}"#, "user", "make the user"),
            (#"{"id": "a.b", "executable": "/a/b", "user": -1}"#, "user", "user's name"),
            (#"{"id": "a.b", "executable": "/a/b", "user": 4294967295}"#, "user", "user's name"),
            (#"{"id": "a.b", "executable": "/a/b", "user": true}"#, "user", "user's name"),
            (#"{"id": "a.b", "executable": "/a/b", "busName": "orders"}"#, "busName", "org.example.orders"),
            (#"{"id": "a.b", "executable": "/a/b", "busName": ":1.7"}"#, "busName", "org.example.orders"),
            (#"{"id": "a.b", "executable": "/a/b", "busName": ""}"#, "busName", "org.example.orders"),
            (#"{"id": "a.b", "executable": "/a/b", "stores": "photos"}"#, "stores", "an array of strings"),
            (#"{"id": "a.b", "executable": "/a/b", "stores": ["photos", "photos"]}"#, "stores", "once"),
            (#"{"id": "a.b", "executable": "/a/b", "stores": [" "]}"#, "stores", "orders database"),
            (
                #"{"id": "a.b", "executable": "/a/b", "sharedDeviceModeSupported": 1}"#, "sharedDeviceModeSupported",
                "true"
            ),
        ]
    )
    func mistakes(text: String, key: String, remedy: String) throws {
        let error = try #require(failure(text))
        #expect(error.key == key && error.description.hasPrefix("orders.json: \"\(key)\": "), "\(error)")
        #expect(error.remedy.contains(remedy), "\(error)")
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

    @Test("content that is not a JSON object is an error")
    func noObject() {
        for text in ["", "[]", "<plist/>", "{", #"{"id": "a.b", "executable": "/a/b",}"#] {
            let error = failure(text)
            #expect(error?.code == .invalidJSON && error?.remedy.contains(#"{"id": "org.example.orders", …}"#) == true)
        }
    }

    @Test("a duplicate key is an error")
    func twice() {
        let error = failure(#"{"id": "a.b", "executable": "/a/b", "user": "ada", "user": "grace"}"#)
        #expect(error?.code == .contradiction && error?.remedy == "leave one")
        #expect(error?.message.hasPrefix("“user” is there twice") == true)
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

    @Test("the manifests are next to the configuration by default")
    func place() {
        #expect(AppManifestDirectory.defaultPath == "/etc/shared-device/apps")
        let places = ["managed.json", "/managed.json"].map { ManagedConfigurationFile(path: $0).appManifestDirectory }
        #expect(places == ["./apps", "/apps"])
    }

    @Test("a missing directory means no manifests and is no problem")
    func missing() {
        #expect(apps.load() == AppManifests())
    }

    @Test("all JSON files are read in order of name, except hidden files")
    func load() throws {
        try write("b.json", "org.example.b")
        try write("a.json", "org.example.a")
        try write(".c.json", "org.example.c")
        try write("d.json~", "org.example.d")
        let loaded = apps.load()
        #expect(loaded.manifests == [manifest("org.example.a"), manifest("org.example.b")])
        #expect(loaded.problems.isEmpty && loaded.unknown.isEmpty)
        #expect(loaded.contents.keys.sorted() == ["a.json", "b.json"])
    }

    @Test("a bad manifest is reported and does not affect the others")
    func bad() throws {
        try write("a.json", "org.example.a")
        try write("b.json", "no reverse DNS")
        try write("c.json", "org.example.c")
        mkdir(directory.file("apps/d.json"), 0o755)
        try write("e.json", "org.example.e")
        chmod(directory.file("apps/e.json"), 0o666)
        let loaded = apps.load()
        #expect(loaded.manifests.map(\.identifier) == ["org.example.a", "org.example.c"])
        #expect(loaded.problems.map(\.code) == [.invalidValue, .unreadable, .insecure])
        #expect(loaded.problems.map(\.file) == ["b", "d", "e"].map { directory.file("apps/\($0).json") })
    }

    @Test("a manifest that became bad keeps its last valid content, if it had any")
    func kept() async throws {
        try write("a.json", "org.example.a")
        let kept = apps.load().contents
        #expect(kept.keys.sorted() == ["a.json"])
        for content in ["", "{", #"{"id": "org.example.a", "executable": "/no/such/app", "user": "no such user"}"#] {
            try directory.write(content, to: "apps/a.json")
            #expect(apps.load().unknown == [directory.file("apps/a.json")])
            var updates = try await onceInotifyIsFree { try apps.updates(kept: kept) }.makeAsyncIterator()
            let first = try #require(await updates.next())
            #expect(first.manifests == [manifest("org.example.a")])
            #expect(first.problems.count == 1 && first.unknown.isEmpty)
            #expect(first.contents == kept, "also at the start after this one")
        }
        unlink(directory.file("apps/a.json"))
        var updates = try await onceInotifyIsFree { try apps.updates(kept: kept) }.makeAsyncIterator()
        #expect(await updates.next() == AppManifests(), "a manifest that was removed is over")
    }

    @Test("a directory is read again without events while the reader asks for it")
    func readAgain() async throws {
        let reads = Shared(0)
        let updates = try await onceInotifyIsFree {
            do throws(DirectoryWatch.Errno) {
                return try DirectoryWatcher.updates(of: directory.path, quietPeriod: .milliseconds(10)) { _ in
                    reads.withLock { reads -> Int? in
                        reads += 1
                        return reads == 3 ? reads : nil
                    }
                } again: {
                    reads.withLock { $0 } < 3 ? .milliseconds(10) : nil
                }
            } catch {
                throw ManagedConfigurationError.cannotWatch(directory.path, error)
            }
        }
        var iterator = updates.makeAsyncIterator()
        #expect(await iterator.next() == 3)
    }

    @Test("kept manifests stay while a user is unknown or the directory is unreadable")
    func keptThroughTrouble() async throws {
        try write("a.json", "org.example.a")
        let unread = [
            "a.json": Data(#"{"id": "org.example.a", "executable": "/no/such/app", "user": "no such user"}"#.utf8)
        ]
        try directory.write("{", to: "apps/a.json")
        var updates = try await onceInotifyIsFree { try apps.updates(kept: unread) }.makeAsyncIterator()
        let first = try #require(await updates.next())
        #expect(first.unknown == [directory.file("apps/a.json")] && first.contents == unread)
        try write("a.json", "org.example.a")
        let kept = apps.load().contents
        chmod(apps.path, 0o777)
        updates = try await onceInotifyIsFree { try apps.updates(kept: kept) }.makeAsyncIterator()
        let second = try #require(await updates.next())
        #expect(second.manifests == [manifest("org.example.a")])
        #expect(second.contents == kept && second.unknown == [apps.path])
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

    @Test("of two manifests with one identifier the first by name counts")
    func duplicates() throws {
        try write("a.json", "org.example.a", executable: "/no/first")
        try write("b.json", "org.example.a", executable: "/no/second")
        let loaded = apps.load()
        #expect(loaded.manifests.map(\.identity.executable) == ["/no/first"])
        let problem = try #require(loaded.problems.first)
        #expect(loaded.problems.count == 1 && problem.code == .contradiction)
        #expect(problem.file == directory.file("apps/b.json"))
        #expect(problem.message.contains(directory.file("apps/a.json")))
    }

    @Test("a world-writable directory enrols no app")
    func insecure() throws {
        try write("a.json", "org.example.a")
        chmod(apps.path, 0o777)
        let loaded = apps.load()
        #expect(loaded.manifests.isEmpty && loaded.problems.map(\.code) == [.insecure])
    }

    @Test("added, changed, broken, repaired and removed manifests are noticed")
    func watch() async throws {
        var updates = try await onceInotifyIsFree { try apps.updates(quietPeriod: .milliseconds(5)) }
            .makeAsyncIterator()
        func wait(_ wanted: AppManifests) async throws {
            while let update = await updates.next(isolation: #isolation) {
                if update.manifests == wanted.manifests, update.problems.isEmpty, update.unknown.isEmpty { return }
            }
            Issue.record("the updates have ended")
        }
        let (a, b) = (manifest("org.example.a"), manifest("org.example.b"))
        try await wait(AppManifests())
        try write("a.json", "org.example.a")
        try await wait(AppManifests(manifests: [a]))
        try write("b.json", "org.example.b")
        try await wait(AppManifests(manifests: [a, b]))

        try directory.write("{", to: "apps/a.json")
        var broken = await updates.next(isolation: #isolation)
        while let update = broken, update.problems.isEmpty { broken = await updates.next(isolation: #isolation) }
        #expect(broken?.manifests == [a, b] && broken?.problems.map(\.code) == [.invalidJSON])
        try write("a.json", "org.example.a2")
        try await wait(AppManifests(manifests: [manifest("org.example.a2"), b]))

        #expect(unlink(directory.file("apps/a.json")) == 0)
        try await wait(AppManifests(manifests: [b]))
        try directory.rename("apps", to: "elsewhere")
        try await wait(AppManifests())
        try directory.rename("elsewhere", to: "apps")
        try await wait(AppManifests(manifests: [b]))
    }
}
