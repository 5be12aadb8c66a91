import Glibc
import NotifyCenterTestKit
import Testing

@testable import AppAdapters

@Suite("A declared path that leads elsewhere since the session began")
struct SessionPlacesTests {
    private let directory: TemporaryDirectory
    private var parent: String { "\(directory.path)/parent" }
    private var data: String { "\(parent)/data" }
    private var secret: String { "\(data)/secret" }
    private var state: String { "\(directory.path)/state" }
    private var record: SessionRecord { SessionRecord(stateDirectory: state, paths: [data]) }

    init() throws {
        directory = try TemporaryDirectory("session-places")
        try writeFile("marker-of-ada", to: secret)
    }

    private struct StoppedProgram: ProgramControl {
        let name = "a program"

        func isStopped() async throws(AdapterFailure) -> Bool { true }
        func stop() async throws(AdapterFailure) {}
        func start() async throws(AdapterFailure) {}
    }

    private var adapter: Adapter {
        let (program, user) = (StoppedProgram(), geteuid())
        return Adapter(program: program, start: nil, paths: [data], user: user, stateDirectory: state, log: { _ in })
    }

    @Test("a moved parent is an error until it is back, but not for the next session")
    func movedParent() async throws {
        try record.begin()
        succeed(rename(parent, "\(parent).away"))
        let failure = await #expect(throws: AdapterFailure.self) { try await adapter.cleanUp() }
        #expect(failure?.description.contains("\(parent) was moved or removed") == true, "\(failure as Any)")
        succeed(rename("\(parent).away", parent))
        _ = try await adapter.cleanUp()
        #expect(!exists(secret))
        // The cleanup has ended the record.
        succeed(rename(parent, "\(parent).away"))
        try record.begin()
        _ = try await adapter.cleanUp()
    }

    @Test("a mount over a parent is an error that names it, and its content stays", .needsMounts)
    func mountedOver() async throws {
        try record.begin()
        succeed(mount("none", parent, "tmpfs", 0, nil))
        defer { umount2(parent, Int32(MNT_DETACH)) }
        try writeFile("marker-of-grace", to: secret)
        let failure = await #expect(throws: AdapterFailure.self) { try await adapter.cleanUp() }
        #expect(failure?.description.contains("umount \(parent)") == true, "\(failure as Any)")
        #expect(exists(secret))
        // A child that another test forks keeps the mount busy until it calls exec.
        try await eventually("the mount is gone") { umount2(parent, 0) == 0 }
        _ = try await adapter.cleanUp()
        #expect(!exists(secret))
    }

    private func places(_ mounts: [SessionPlaces.Mount], hasParent: Bool = true) -> SessionPlaces {
        SessionPlaces(places: [.init(path: "/run/user/1000/app/data", hasParent: hasParent, mounts: mounts)])
    }

    @Test("an unmounted disk is an error, but an unmounted tmpfs is not")
    func unmounted() {
        let root = SessionPlaces.Mount(point: "/", type: "ext4")
        let disk = SessionPlaces.Mount(point: "/run/user/1000", type: "ext4")
        let memory = SessionPlaces.Mount(point: "/run/user/1000", type: "tmpfs")
        #expect(places([root, disk]).moved(places([root], hasParent: false)).count == 1)
        #expect(places([root, memory]).moved(places([root], hasParent: false)).isEmpty)
        // A second mount at the same point covers the first.
        #expect(places([root, memory]).moved(places([root, memory, memory])).count == 1)
    }
}
