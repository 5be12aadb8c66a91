import Dispatch
import Foundation
import NotifyCenterTestKit
import Testing

@testable import SharedDeviceTestKit

@Suite("The search for markers")
struct ByteSearchTests {
    private func search(_ text: String, in files: [String: Data]) throws -> ByteSearch.Result {
        let directory = try TemporaryDirectory("byte-search")
        for (path, content) in files {
            let url = URL(fileURLWithPath: "\(directory.path)/\(path)")
            let folder = url.deletingLastPathComponent().path
            try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
            try content.write(to: url)
        }
        return try ByteSearch([Marker(text)]).run(under: directory.path)
    }

    @Test(
        "a marker is found once, at any offset in a large file",
        arguments: [0, 1 << 20, (1 << 20) - 3, (1 << 20) - 7, (2 << 20) - 1]
    )
    func atEveryPlace(offset: Int) throws {
        for encoding in [String.Encoding.utf8, .utf16LittleEndian, .utf16BigEndian] {
            let needle = try #require("Secret1".data(using: encoding))
            // Padding other than zeros: between zeros, both byte orders look alike.
            let padding = { Data(repeating: 0x55, count: $0) }
            let content = padding(offset) + needle + padding(100)
            let found = try search("secRET1", in: ["a/b": content]).findings
            #expect(found.map(\.offset) == [offset], "\(encoding)")
            #expect(found.first?.path == "a/b")
        }
    }

    @Test("names and link targets are searched, and pipes and missing folders are no error")
    func names() throws {
        let directory = try TemporaryDirectory("byte-search")
        try FileManager.default.createDirectory(atPath: "\(directory.path)/of-ada", withIntermediateDirectories: true)
        try Data().write(to: URL(fileURLWithPath: "\(directory.path)/of-ada/ada.txt"))
        try FileManager.default.createSymbolicLink(atPath: "\(directory.path)/link", withDestinationPath: "/home/ada/x")
        #expect(mkfifo("\(directory.path)/pipe", 0o600) == 0)
        let found = try ByteSearch(["ada"]).run(under: directory.path).findings
        #expect(found.map(\.path) == ["link", "of-ada", "of-ada/ada.txt"] && found.map(\.offset) == [6, nil, nil])
        #expect(try search("secret", in: ["a": Data("secre".utf8), "b": Data("t".utf8)]).findings.isEmpty)
        #expect(try ByteSearch(["x"]).run(under: "/nonexistent/directory").files.isEmpty)
    }

    // Foundation's copy did not end in this case: Firefox's test hung in one of many runs.
    @Test("a copy ends when the file is truncated during the copy", .timeLimit(.minutes(5)))
    func shrinking() throws {
        let directory = try TemporaryDirectory("directory-copy")
        let (source, target) = (try directory.folder("source"), "\(directory.path)/target")
        #expect(FileManager.default.createFile(atPath: "\(source)/log", contents: nil))
        for _ in 0..<3 {
            try? FileManager.default.removeItem(atPath: target)
            #expect(truncate("\(source)/log", 128 << 20) == 0)
            // Each round has a separate thread, which ends with it.
            let (isCopied, hasEnded) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
            Thread.detachNewThread {
                var status = stat()
                while isCopied.wait(timeout: .now()) == .timedOut,
                    stat("\(target)/log", &status) != 0 || status.st_size == 0
                {
                    sched_yield()
                }
                truncate("\(source)/log", 0)
                hasEnded.signal()
            }
            DirectoryCopy.copy(source, to: target)
            isCopied.signal()
            hasEnded.wait()
            #expect(FileManager.default.fileExists(atPath: "\(target)/log"))
        }
    }
}
