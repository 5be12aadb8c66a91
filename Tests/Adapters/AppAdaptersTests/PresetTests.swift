import Foundation
import Glibc
import NotifyCenterTestKit
import SharedDevice
import SharedDeviceTestKit
import Testing

@Suite("An unmodified program of a preset takes part")
struct PresetTests {
    private static let identifier = "org.example.unchanged"
    private static let marker = "marker-of-ada-4711"

    /// A page that stores a cookie, a value of local storage and a database.
    private static let page = """
        <title>\(marker)-title</title><script>
        document.cookie = "session=\(marker)-cookie; max-age=3600";
        localStorage.setItem("\(marker)-key", "\(marker)-value");
        const r = indexedDB.open("\(marker)-base", 1);
        r.onupgradeneeded = () => r.result.createObjectStore("s").put("\(marker)-record", 1);
        </script>
        """

    @Test(
        "no marker of Ada is left in the program's data after her sign-out",
        .timeLimit(.minutes(5)),
        arguments: [UnchangedProgram.chromium, .firefox, .libreOffice]
    )
    func wholeRound(_ program: UnchangedProgram) async throws {
        guard let path = program.path else { try Test.cancel("\(program.preset) is not installed") }
        let pages = try TemporaryDirectory("preset-pages")
        try writeFile(Self.page, to: "\(pages.path)/index.html")
        let words = ["-u", "-m", "http.server", "--bind", "127.0.0.1", "--directory", pages.path, "0"]
        let server = try ChildProcess("python3", words)
        let greeting = try await server.line { $0.contains("port ") }
        let port = try #require(greeting.split(separator: " ").drop { $0 != "port" }.dropFirst().first)
        // Programs create sockets in this directory, and the path of a socket has at most 107 bytes.
        var template = Array("/tmp/kiosk-XXXXXX".utf8CString)
        let data = try #require(mkdtemp(&template).map { String(cString: $0) })
        defer { try? FileManager.default.removeItem(atPath: data) }
        let document = "home/Downloads/\(Self.marker).txt"
        try plant([document], in: data)
        let app = TestApp(
            Self.identifier,
            executable: ChildProcess.built("shared-device"),
            arguments: [
                // The document must exist before the program starts.
                "run", "--app", Self.identifier, "--data", data, "--adopt", "--preset", program.preset, "--start",
                "signed-in", "--", path,
            ] + program.arguments("http://127.0.0.1:\(port)/?\(Self.marker)-history", "\(data)/\(document)"),
            dataDirectories: [data]
        )
        let device = try await TestDevice(apps: [app], cleanup: .strict)
        try await device.signIn("ada")
        try await device.waitUntilRunning()
        let search = ByteSearch([Marker(Self.marker)])
        for place in program.places {
            try await eventually("\(place) has the marker", within: .seconds(120)) {
                try !search.run(under: "\(data)/\(place)").findings.isEmpty
            }
        }
        // Plants data that the programs themselves write only now and then.
        try plant(["cache/\(Self.marker)", "home/.local/share/recently-used.xbel"], in: data)
        succeed(symlink("/etc", "\(data)/profile/etc"))
        #expect(try !Self.processes(of: data).isEmpty)
        try await device.signOut(deadline: .seconds(60)).requireClean(of: Marker(Self.marker))
        #expect(try Self.processes(of: data).isEmpty)
        #expect(try FileManager.default.contentsOfDirectory(atPath: data).isEmpty)
        #expect(exists("/etc/passwd"))
        // The program starts again for the next user. Without the document, LibreOffice would exit before the test sees
        // its process. A killed adapter leaves its program running, and the next adapter has to find and stop the
        // program. By the time Chromium stores data, it has overwritten its environment and arguments.
        try plant([document], in: data)
        try await device.signIn("grace")
        try await eventually("the program stores data", within: .seconds(120)) {
            try !search.run(under: "\(data)/\(program.places[0])").findings.isEmpty
        }
        let adapter = try device.app(Self.identifier)
        try await adapter.kill()
        #expect(try await !device.signOut(deadline: .seconds(1)).isClean)
        #expect(try !Self.processes(of: data).isEmpty)
        try adapter.start()
        try await device.waitUntilClean().requireClean(of: Marker(Self.marker))
        #expect(try Self.processes(of: data).isEmpty)
    }

    private func plant(_ files: [String], in data: String) throws {
        for file in files { try writeFile(Self.marker, to: "\(data)/\(file)") }
    }

    private static func processes(of directory: String) throws -> [Int32] {
        try FileManager.default.contentsOfDirectory(atPath: "/proc").compactMap { Int32($0) }.filter { process in
            guard process != getpid(), let words = FileManager.default.contents(atPath: "/proc/\(process)/cmdline")
            else { return false }
            let text = String(decoding: words, as: UTF8.self)
            return text.contains("\(directory)/") && !text.contains("shared-device")
        }
    }
}

/// A program as Debian packages it, and how a test makes it store Ada's marker.
struct UnchangedProgram: Sendable, CustomTestStringConvertible {
    let preset: String
    var testDescription: String { preset }
    private let candidates: [String]
    /// The places in its data directory where the program itself stores the marker.
    let places: [String]
    let arguments: @Sendable (_ page: String, _ document: String) -> [String]

    var path: String? { candidates.first { access($0, X_OK) == 0 } }

    static let chromium = UnchangedProgram(
        preset: "chromium",
        candidates: ["/usr/bin/chromium", "/usr/bin/chromium-browser"],
        places: ["profile/Default/Local Storage", "profile/Default/IndexedDB"]
    ) { page, _ in
        [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0",
            page,
        ]
    }

    static let firefox = UnchangedProgram(
        preset: "firefox",
        candidates: ["/usr/bin/firefox-esr", "/usr/bin/firefox"],
        places: ["profile/storage/default", "profile/cache2", "profile/places.sqlite-wal"]
    ) { page, _ in ["--headless", page] }

    /// LibreOffice with Writer, which opens the document.
    static let libreOffice = UnchangedProgram(
        preset: "libreoffice",
        candidates: access("/usr/lib/libreoffice/program/libswlo.so", F_OK) == 0 ? ["/usr/bin/soffice"] : [],
        places: ["profile/user/registrymodifications.xcu"]
    ) { _, document in ["--headless", "--accept=pipe,name=\(UUID().uuidString);urp", document] }
}
