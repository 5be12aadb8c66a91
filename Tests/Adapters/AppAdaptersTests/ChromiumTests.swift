import Foundation
import Glibc
import NotifyCenterTestKit
import SharedDevice
import SharedDeviceTestKit
import Testing

@Suite("An unchanged Chromium takes part", .enabled(if: Chromium.path != nil, "chromium is not installed"))
struct ChromiumTests {
    private static let identifier = "org.example.browser"

    @Test(
        "Ada's marker in its cookies, local storage, cache, downloads and history is gone after her sign-out",
        .timeLimit(.minutes(5))
    )
    func wholeRound() async throws {
        let chromium = try #require(Chromium.path)
        let marker = "marker-of-ada-4711"
        let pages = try TemporaryDirectory("chromium-pages")
        // The page stores what pages can store, and asks for a download.
        let page = """
            <title>\(marker)-title</title><script>
            document.cookie = "session=\(marker)-cookie; max-age=3600";
            localStorage.setItem("\(marker)-key", "\(marker)-value");
            const r = indexedDB.open("\(marker)-base", 1);
            r.onupgradeneeded = () => r.result.createObjectStore("s").put("\(marker)-record", 1);
            </script>
            """
        try page.write(toFile: "\(pages.path)/index.html", atomically: true, encoding: .utf8)
        let server = try ChildProcess(
            "python3",
            ["-u", "-m", "http.server", "--bind", "127.0.0.1", "--directory", pages.path, "0"]
        )
        let greeting = try await server.line { $0.contains("port ") }
        let port = try #require(greeting.split(separator: " ").drop { $0 != "port" }.dropFirst().first)
        // The browser makes sockets below it, whose paths may have 107 bytes.
        var template = Array("/tmp/kiosk-XXXXXX".utf8CString)
        let data = try #require(mkdtemp(&template).map { String(cString: $0) })
        defer { try? FileManager.default.removeItem(atPath: data) }
        let app = TestApp(
            Self.identifier,
            executable: ChildProcess.built("shared-device"),
            arguments: [
                "run", "--app", Self.identifier, "--data", data, "--preset", "chromium", "--start", "signed-in", "--",
                chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                "--remote-debugging-port=0", "http://127.0.0.1:\(port)/?\(marker)-history",
            ],
            dataDirectories: [data]
        )
        let device = try await TestDevice(apps: [app], cleanup: .strict)
        try await device.signIn("ada")
        try await device.waitUntilRunning()
        let profile = "\(data)/profile/Default"
        let search = ByteSearch([Marker(marker)])
        for place in ["Local Storage", "IndexedDB"] {
            try await eventually("\(place) has the marker", within: .seconds(120)) {
                try !search.run(under: "\(profile)/\(place)").findings.isEmpty
            }
        }
        // What the browser does at leisure is planted, where it keeps it.
        for place in ["home/Downloads/\(marker).pdf", "cache/\(marker)", "home/.local/share/recently-used.xbel"] {
            let path = "\(data)/\(place)"
            try FileManager.default.createDirectory(
                atPath: URL(fileURLWithPath: path).deletingLastPathComponent().path,
                withIntermediateDirectories: true
            )
            try marker.write(toFile: path, atomically: true, encoding: .utf8)
        }
        #expect(symlink("/etc", "\(profile)/etc") == 0)
        let processes = try Chromium.processes(of: data)
        #expect(processes.count > 2, "the browser has several processes")
        try await device.signOut(deadline: .seconds(60)).requireClean(of: Marker(marker))
        #expect(try Chromium.processes(of: data).isEmpty)
        #expect(try FileManager.default.contentsOfDirectory(atPath: data).isEmpty)
        #expect(FileManager.default.fileExists(atPath: "/etc/passwd"))
        // It starts anew for the next person, with an empty profile.
        try await device.signIn("grace")
        try await eventually("it runs again", within: .seconds(60)) { try !Chromium.processes(of: data).isEmpty }
        try await device.signOut(deadline: .seconds(60)).requireClean()
    }
}

enum Chromium {
    /// The program; `nil` where it is not installed.
    static let path: String? = ["/usr/bin/chromium", "/usr/bin/chromium-browser"].first { access($0, X_OK) == 0 }

    /// The processes with this directory on their command line.
    static func processes(of directory: String) throws -> [Int32] {
        try FileManager.default.contentsOfDirectory(atPath: "/proc").compactMap { Int32($0) }.filter { process in
            guard process != getpid(), let words = FileManager.default.contents(atPath: "/proc/\(process)/cmdline")
            else { return false }
            let text = String(decoding: words, as: UTF8.self)
            return text.contains("--user-data-dir=\(directory)/") && !text.contains("shared-device")
        }
    }
}
