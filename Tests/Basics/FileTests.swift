import Basics
import Glibc
import NotifyCenterTestKit
import Testing

@Suite("Small files")
struct FileTests {
    private let directory = Result { try TemporaryDirectory("files") }

    private func path() throws -> String { try directory.get().path + "/file" }

    private func content(_ path: String) throws -> String {
        String(decoding: try ReadableFile(path).content(atMost: 100), as: UTF8.self)
    }

    private func mode(_ path: String) throws -> mode_t { try ReadableFile(path).status().st_mode & 0o777 }

    @Test("a file is read up to its limit, and refused above it")
    func limit() throws {
        try AtomicFile(path: path()).write("12345".utf8)
        #expect(try ReadableFile(path()).content(atMost: 5).count == 5)
        #expect(throws: FileReadError.tooLarge(4)) { try ReadableFile(path()).content(atMost: 4) }
        #expect(try ReadableFile(path()).prefix(2) == Array("12".utf8))
        #expect(throws: FileReadError.system(ENOENT)) { try ReadableFile(path() + "2").prefix(1) }
    }

    @Test("opening neither follows a forbidden link nor waits for the writer of a pipe")
    func otherKinds() throws {
        let pipe = try path()
        try #require(mkfifo(pipe, 0o600) == 0 && symlink(pipe, pipe + "2") == 0)
        #expect(try ReadableFile(pipe).isRegular() == false)
        #expect(throws: FileReadError.system(ELOOP)) { try ReadableFile(pipe + "2", followsLink: false).isRegular() }
    }

    @Test("a file is replaced in one step, with the rights of its readers")
    func replace() throws {
        let path = try path()
        for (readers, mode) in [(.owner, 0o600), (.everyone, 0o644)] as [(AtomicFile.Readers, mode_t)] {
            try AtomicFile(path: path, readers: readers).write("\(readers)".utf8)
            #expect(try content(path) == "\(readers)" && self.mode(path) == mode)
        }
        try AtomicFile(path: path).remove()
        try AtomicFile(path: path).remove()
        #expect(access(path, F_OK) != 0)
    }

    @Test("a leftover draft is replaced in the user's directory and refused elsewhere")
    func drafts() throws {
        let (path, target) = (try path(), try path() + ".target")
        for draft in ["\(path).new", "\(path).\(getpid())"] { try #require(symlink(target, draft) == 0) }
        try AtomicFile(path: path).write("own".utf8)
        #expect(throws: AtomicFile.Failure.self) {
            try AtomicFile(path: path, isOwnDirectory: false).write("shared".utf8)
        }
        #expect(try content(path) == "own" && access(target, F_OK) != 0)
    }

    @Test("a failed replacement keeps the old content and names the file and the reason")
    func failure() throws {
        let path = "/proc/self/nothing"
        do throws(AtomicFile.Failure) {
            try AtomicFile(path: path, isOwnDirectory: false).write("x".utf8)
            Issue.record("there is no such directory")
        } catch {
            #expect("\(error)".contains(path) && error.code == ENOENT)
        }
    }

    @Test("the directory of a path is its part before the last name")
    func directories() {
        #expect(["a", "/a", "/a/b", "/a/b//", "a/b", "/"].map(parentDirectory) == [".", "/", "/a", "/a", "a", "/"])
    }
}
