import Testing

@testable import Basics

// Rules, a.13
@Suite struct PathResolutionTests {
    private typealias Node = FakeFileSystem.Node

    private func resolve(_ path: String, _ nodes: [String: Node]) -> Found {
        var fileSystem = FakeFileSystem()
        fileSystem.nodes.merge(nodes) { $1 }
        let resolution = PathResolution(of: FilePath(path), by: &fileSystem)
        return Found(resolution.texts(fileSystem), resolution.end)
    }

    private struct Found: Equatable {
        let watches: Set<String>
        let end: PathResolution.End

        init(_ watches: Set<String>, _ end: PathResolution.End) { (self.watches, self.end) = (watches, end) }
    }

    private let present = PathResolution.End.present(FileSnapshot(inode: 5))

    @Test func everyDirectoryOnTheWayIsWatchedAndTheFileItself() {
        #expect(
            resolve("/a//b/./c/", ["/a": .directory, "/a/b": .directory, "/a/b/c": .file(inode: 5)])
                == Found(["/:a", "/a:b", "/a/b:c!", "/a/b/c:"], present)
        )
    }

    @Test func theExistingPartOfAMissingPathIsWatched() {
        #expect(resolve("/a/b/c", ["/a": .directory]) == Found(["/:a", "/a:b"], .missing))
        #expect(resolve("/a", [:]) == Found(["/:a!"], .missing))
        // A path continues after a file.
        #expect(resolve("/a/b", ["/a": .file(inode: 1)]) == Found(["/:a"], .missing))
    }

    @Test func linksAndTheirTargetsAreWatched() {
        let nodes: [String: Node] = [
            "/a": .directory, "/a/l": .link("../x/y"), "/x": .directory, "/x/y": .link("/z"), "/z": .file(inode: 5),
        ]
        #expect(resolve("/a/l", nodes) == Found(["/:a", "/a:l!", "/:x", "/x:y!", "/:z!", "/z:"], present))
        #expect(resolve("/l/f", ["/l": .link("d")]) == Found(["/:l", "/:d"], .missing))
    }

    @Test func linksInACircleLeadNowhere() {
        #expect(resolve("/a", ["/a": .link("b"), "/b": .link("a")]) == Found(["/:a!", "/:b!"], .missing))
    }

    @Test func aPathOfTooManyPartsLeadsNowhere() {
        let detour = String(repeating: "a/../", count: 1000)
        var nodes: [String: Node] = ["/a": .directory, "/l3": .file(inode: 5)]
        for link in 0..<3 { nodes["/l\(link)"] = .link("\(detour)l\(link + 1)") }
        #expect(resolve("/l2", nodes).end == present)
        #expect(resolve("/l0", nodes).end == .missing)
    }

    @Test func aDirectoryIsWatchedAsAWhole() {
        let directory = PathResolution.End.present(FileSnapshot())
        #expect(resolve("/a", ["/a": .directory]) == Found(["/:a!", "/a:"], directory))
        #expect(resolve("/", [:]) == Found(["/:"], directory))
        #expect(resolve("/a/..", ["/a": .directory]) == Found(["/:a", "/:"], directory))
    }

    @Test func aPartThatMayNotBeSearchedIsDenied() {
        #expect(resolve("/a/b/c", ["/a": .directory, "/a/b": .closed]) == Found(["/:a", "/a:b"], .denied))
    }

    @Test func parentsEndAtTheRoot() {
        #expect(FilePath("/a/b").parent == FilePath("/a"))
        #expect(FilePath("/a").parent == .root)
        #expect(FilePath.root.parent == .root)
        #expect(resolve("/../../a", ["/a": .file(inode: 5)]).end == present)
    }

    // inotify needs the right to read; stat does not.
    @Test func aFileThatMayNotBeReadIsWatchedByItsDirectory() {
        let nodes: [String: Node] = ["/a": .directory, "/a/f": .secret(inode: 5)]
        #expect(resolve("/a/f", nodes) == Found(["/:a", "/a:f!", "/a writes:f!"], present))
    }

    @Test func pathsThatCannotBeWatchedAreCompared() {
        func isCompared(_ path: String, _ nodes: [String: Node]) -> Bool {
            var fileSystem = FakeFileSystem()
            fileSystem.nodes.merge(nodes) { $1 }
            return PathResolution(of: FilePath(path), by: &fileSystem).isCompared
        }
        #expect(!isCompared("/a/f", ["/a": .directory, "/a/f": .secret(inode: 5)]))
        #expect(isCompared("/a/f", ["/a": .locked, "/a/f": .secret(inode: 5)]))
        #expect(isCompared("/a/f", ["/a": .locked, "/a/f": .file(inode: 5)]))
        #expect(isCompared("/a", ["/a": .locked]))
    }
}
