import Foundation
import NotifyCenterTestKit
import SharedDeviceTestKit
import Testing

@Suite("The search for markers")
struct ByteSearchTests {
    private func search(_ text: String, in files: [String: Data]) throws -> ByteSearch.Result {
        let directory = try TemporaryDirectory("byte-search")
        for (path, content) in files {
            let url = URL(fileURLWithPath: "\(directory.path)/\(path)")
            try FileManager.default.createDirectory(
                at: url.deletingLastPathComponent(),
                withIntermediateDirectories: true
            )
            try content.write(to: url)
        }
        return try ByteSearch([Marker(text)]).run(under: directory.path)
    }

    @Test(
        "a marker is found wherever it is in a large file, once",
        arguments: [0, 1 << 20, (1 << 20) - 3, (1 << 20) - 7, (2 << 20) - 1]
    )
    func atEveryPlace(offset: Int) throws {
        for encoding in [String.Encoding.utf8, .utf16LittleEndian, .utf16BigEndian] {
            let needle = try #require("Secret1".data(using: encoding))
            // Other bytes than zeros: between zeros, both byte orders look alike.
            let padding = { Data(repeating: 0x55, count: $0) }
            let content = padding(offset) + needle + padding(100)
            let found = try search("secRET1", in: ["a/b": content]).findings
            #expect(found.map(\.offset) == [offset], "\(encoding)")
            #expect(found.first?.path == "a/b")
        }
    }

    @Test("names of files and directories, targets of links and empty files are searched; pipes do not block")
    func names() throws {
        let directory = try TemporaryDirectory("byte-search")
        try FileManager.default.createDirectory(atPath: "\(directory.path)/of-ada", withIntermediateDirectories: true)
        try Data().write(to: URL(fileURLWithPath: "\(directory.path)/of-ada/ada.txt"))
        try FileManager.default.createSymbolicLink(atPath: "\(directory.path)/link", withDestinationPath: "/home/ada/x")
        #expect(mkfifo("\(directory.path)/pipe", 0o600) == 0)
        let found = try ByteSearch(["ada"]).run(under: directory.path).findings
        #expect(found.map(\.path) == ["link", "of-ada", "of-ada/ada.txt"])
        #expect(found.map(\.offset) == [6, nil, nil])
    }

    @Test("an absent marker is not found, and a missing directory counts as empty")
    func absent() throws {
        #expect(try search("secret", in: ["a": Data("secre".utf8), "b": Data("t".utf8)]).findings.isEmpty)
        #expect(try ByteSearch(["x"]).run(under: "/nonexistent/directory").files.isEmpty)
    }
}
