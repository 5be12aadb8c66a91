import Testing

@testable import Basics

// Rules, a.13
@Suite struct PathResolutionTests {
    private typealias Node = FakeFileSystem.Node

    private func resolution(_ path: String, _ nodes: [String: Node]) -> (PathResolution, FakeFileSystem) {
        var fileSystem = FakeFileSystem()
        fileSystem.nodes.merge(nodes) { $1 }
        let resolution = PathResolution(of: FilePath(path), by: &fileSystem)
        return (resolution, fileSystem)
    }

    private static let present = PathResolution.End.present(FileSnapshot(inode: 5))
    private static let directory = PathResolution.End.present(FileSnapshot())

    /// A path, the nodes of the file system, the watches, and the end of the path.
    private static let cases: [(String, [String: Node], Set<String>, PathResolution.End)] = [
        // Every directory on the way is watched, and the file itself.
        (
            "/a//b/./c/", ["/a": .directory, "/a/b": .directory, "/a/b/c": .file(inode: 5)],
            ["/:a", "/a:b", "/a/b:c!", "/a/b/c:"], present
        ),
        // The existing part of a missing path is watched. A path may continue after a file.
        ("/a/b/c", ["/a": .directory], ["/:a", "/a:b"], .missing), ("/a", [:], ["/:a!"], .missing),
        ("/a/b", ["/a": .file(inode: 1)], ["/:a"], .missing),
        // Links and their targets are watched.
        (
            "/a/l",
            ["/a": .directory, "/a/l": .link("../x/y"), "/x": .directory, "/x/y": .link("/z"), "/z": .file(inode: 5)],
            ["/:a", "/a:l!", "/:x", "/x:y!", "/:z!", "/z:"], present
        ),
        ("/l/f", ["/l": .link("d")], ["/:l", "/:d"], .missing),
        // Links in a circle lead nowhere.
        ("/a", ["/a": .link("b"), "/b": .link("a")], ["/:a!", "/:b!"], .missing),
        // A directory is watched as a whole.
        ("/a", ["/a": .directory], ["/:a!", "/a:"], directory), ("/", [:], ["/:"], directory),
        ("/a/..", ["/a": .directory], ["/:a", "/:"], directory),
        // A part that may not be searched is denied.
        ("/a/b/c", ["/a": .directory, "/a/b": .closed], ["/:a", "/a:b"], .denied),
        // A file that may not be read is watched by its directory: inotify needs the right to read, stat does not.
        ("/a/f", ["/a": .directory, "/a/f": .secret(inode: 5)], ["/:a", "/a:f!", "/a writes:f!"], present),
        // Parents end at the root.
        ("/../../a", ["/a": .file(inode: 5)], ["/:a!", "/a:"], present),
    ]

    @Test("the directories, links and targets of a path are watched, and its end is found")
    func watches() {
        for (path, nodes, watches, end) in Self.cases {
            let (resolution, fileSystem) = resolution(path, nodes)
            #expect(resolution.texts(fileSystem) == watches, "\(path) in \(nodes)")
            #expect(resolution.end == end, "\(path) in \(nodes)")
        }
    }

    @Test("a path of too many parts leads nowhere")
    func tooManyParts() {
        let detour = String(repeating: "a/../", count: 1000)
        var nodes: [String: Node] = ["/a": .directory, "/l3": .file(inode: 5)]
        for link in 0..<3 { nodes["/l\(link)"] = .link("\(detour)l\(link + 1)") }
        #expect([resolution("/l2", nodes).0.end, resolution("/l0", nodes).0.end] == [Self.present, .missing])
    }

    @Test("a path that no watch covers is compared, and a parent ends at the root")
    func compared() {
        let cases: [(String, [String: Node], Bool)] = [
            ("/a/f", ["/a": .directory, "/a/f": .secret(inode: 5)], false),
            ("/a/f", ["/a": .locked, "/a/f": .secret(inode: 5)], true),
            ("/a/f", ["/a": .locked, "/a/f": .file(inode: 5)], true), ("/a", ["/a": .locked], true),
        ]
        for (path, nodes, isCompared) in cases {
            #expect(resolution(path, nodes).0.isCompared == isCompared, "\(path) in \(nodes)")
        }
        #expect(["/a/b", "/a", "/"].map { FilePath($0).parent } == [FilePath("/a"), .root, .root])
    }
}
