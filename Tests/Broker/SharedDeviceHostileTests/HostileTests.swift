import Basics
import DBus
import DeviceConfiguration
import Foundation
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import SharedDeviceBroker
import Testing

/// Clients of another user against the real broker, on a bus with the policy that is installed for the system bus. Only
/// root can act as several users.
@Suite("A hostile process of another user", .serialized, .enabled(if: geteuid() == 0, "root alone has several users"))
struct BrokerHostileTests {
    /// Whether an unprivileged process can mount in its own user namespace, including a FUSE file system.
    static let canMakeRoot =
        system(
            "command -v cc >/dev/null && setpriv --reuid=65534 --regid=65534 --clear-groups sh -c "
                + "'test -w /dev/fuse && unshare --user --map-root-user --mount mount -t tmpfs tmpfs /tmp' 2>/dev/null"
        ) == 0
    static let canFreeze =
        system("PATH=$PATH:/usr/sbin:/sbin; test -b /dev/loop0 && command -v fsfreeze mkfs.ext4 >/dev/null") == 0

    /// The deeds of the hostile client, described in its source.
    static let deeds = [
        "passwords", "bodies", "reports", "names", "questions", "information", "newcomers", "never-reads",
        "never-reads-description", "half-open", "enforces", "watches-strangers", "prompts", "tokens",
        "standard", "enrolled", "unanswered", "first-bodies", "silent-crowd",
    ]

    /// The limits of a sign-out's median and longest time. A sign-out takes a dozen messages, so a slow bus raises the
    /// limit. The broker reads a message of 15 MB completely before it refuses it. A sign-out makes the broker respond
    /// to all waiting requests of watchers, who repeat them meanwhile.
    private static func limits(_ deed: String, bus: Duration) -> (median: Duration, worst: Duration) {
        // dbus-broker queues so many messages of one user ahead of other users' that the broker needs seconds to read
        // them. This limit shows only that the wait ends.
        if ["unanswered", "silent-crowd"].contains(deed), PrivateBus.Daemon.chosen == .broker {
            return (.seconds(10), .seconds(10))
        }
        let limits: [String: Duration] = [
            "bodies": .milliseconds(250), "watches-strangers": .milliseconds(150), "silent-crowd": .milliseconds(100),
        ]
        return (max(limits[deed] ?? .milliseconds(50), bus * 12), .seconds(1))
    }

    // S1 to S6, S10, S14
    @Test("a hostile client delays no sign-out, learns no secret, fills no memory or disk", arguments: deeds)
    func flood(deed: String) async throws {
        let device = try await Device()
        // The other load of this machine also delays a sign-out.
        let calm = try await signOutTimes(3, on: device)[1]
        let before = try device.brokerMemory()
        let hostile = try await device.hostile(deed)
        defer { hostile.kill() }
        if deed == "enrolled" {
            // The client first gets the account as the app that its manifest names.
            try await device.signIn()
            try await hostile.line { $0 == "knows the account" }
            try await device.signOut()
        }
        let waits = try await signOutTimes(8, on: device)
        let bus = try await busTime(on: device)
        print("hostile \(deed): sign-out median \(waits[4]), worst \(waits[7]), without the client \(calm); bus \(bus)")
        // Only an optimised build is judged, because only that is installed.
        if Device.releasedProgram != nil {
            let limits = Self.limits(deed, bus: bus)
            #expect(waits[4] < limits.median, "\(waits)")
            #expect(waits[7] < limits.worst, "\(waits)")
        }
        let grown = try device.brokerMemory() - before
        print(
            "hostile \(deed): the broker grew by \(grown / 1024) kB; its files have \(try device.filesSize() / 1024) kB"
        )
        // Two password checks in flight take 64 MB each.
        #expect(grown < 200 << 20)
        #expect(try device.filesSize() < 8 << 20)
        #expect(hostile.lines.filter { $0.hasPrefix("LEAK") }.isEmpty, "\(hostile.lines.prefix(5))")
        #expect(deed.hasPrefix("never-reads") || hostile.isRunning, "\(hostile.errorText)")
    }

    /// Users who send calls without reply as fast as the bus accepts them.
    struct Crowd: CustomTestStringConvertible {
        let users: Int
        let bytes: Int
        /// Whether the bus refuses these users, as it does if the manifests name no app of theirs.
        var isRefusedByBus = false
        /// Whether the bus keeps few bytes, as the page on limits advises for dbus-broker.
        var isBusSmall = false

        /// The limit of a sign-out's time. dbus-broker by default keeps up to 170 MB of one user for the broker, and
        /// both requests of a sign-out wait behind them. The limit there shows only that the wait ends.
        var limit: Duration {
            if users > 1 { return .seconds(1) }
            guard PrivateBus.Daemon.chosen == .broker else { return .milliseconds(100) }
            if !isBusSmall { return .seconds(10) }
            return bytes == 1 ? .seconds(1) : .milliseconds(500)
        }

        var testDescription: String {
            "\(users) users, \(bytes) B\(isRefusedByBus ? ", refused by the bus" : "")\(isBusSmall ? ", small bus" : "")"
        }
    }

    // dbus-daemon accepts 32 MB in a message and disconnects a client that sends more.
    private static let floods = [1, 30_000, 1_000_000, 30_000_000, 120_000_000].map { Crowd(users: 1, bytes: $0) }
    private static let refusedCrowds = crowds.map { Crowd(users: $0.users, bytes: $0.bytes, isRefusedByBus: true) }
    static let crowds = [36, 100].flatMap { users in [1, 30_000].map { Crowd(users: users, bytes: $0) } }
    /// The floods during which a service can still be reached in time. dbus-broker reads a few calls of each sender,
    /// and then passes 16 messages on to the service. A crowd that the bus does not refuse fills the queue for the
    /// service, however fast the service reads.
    static let bearable =
        floods + refusedCrowds
        + (PrivateBus.Daemon.chosen == .daemon
            ? crowds : floods.map { Crowd(users: 1, bytes: $0.bytes, isBusSmall: true) })

    /// How long a flood lasts at least, in seconds. The default ends after eight sign-outs; an endurance test uses 60.
    private static let floodSeconds =
        ProcessInfo.processInfo.environment["NOTIFY_CENTER_TEST_FLOOD_SECONDS"].flatMap(Int.init) ?? 0

    /// A device, a process that floods it with calls, and the time of a sign-in before that.
    private func flooded(by crowd: Crowd) async throws -> (Device, ChildProcess, Duration) {
        let device = try await Device(
            policy: crowd.isRefusedByBus ? .only(users: ["root"], groups: []) : nil,
            extraUsers: 20_000..<20_000 + UInt32(crowd.users),
            bytesPerConnection: crowd.isBusSmall ? 256 << 10 : nil
        )
        let calm = try await signOutTimes(3, on: device, addingSignIns: true)[1]
        let arguments = [device.bus.address, "crowd", "\(crowd.users)", "\(crowd.bytes)"]
        let hostile = try ChildProcess(ChildProcess.built("hostile-client"), arguments)
        try await hostile.line { $0 == "ready" }
        return (device, hostile, calm)
    }

    // Only an optimised build is installed. A debug build reads more slowly than the bus writes.
    private static let withoutReleasedBroker: Comment =
        "NOTIFY_CENTER_TEST_BROKER names no broker that was built in release"

    @Test(
        "users who send calls without end delay neither sign-out nor sign-in",
        .enabled(if: Device.releasedProgram != nil, withoutReleasedBroker),
        arguments: bearable
    )
    func crowd(crowd: Crowd) async throws {
        let (device, hostile, calm) = try await flooded(by: crowd)
        defer { hostile.kill() }
        let end = ContinuousClock.now + .seconds(Self.floodSeconds)
        var (signOuts, signIns): ([Duration], [Duration]) = ([], [])
        let watch = StallWatch()
        repeat {
            signOuts += try await watch.times(8) {
                let start = ContinuousClock.now
                try await device.signIn()
                signIns.append(.now - start)
                let middle = ContinuousClock.now
                try await device.signOut()
                let took = ContinuousClock.now - middle
                try await device.cleanUp()
                return took
            }
        } while .now < end
        signOuts.sort()
        signIns.sort()
        let bus = try await busTime(on: device)
        let (signOut, signIn) = (signOuts[signOuts.count - 1], signIns[signIns.count - 1])
        print("hostile \(crowd.testDescription): sign-out median \(signOuts[signOuts.count / 2]), worst \(signOut)")
        print("hostile \(crowd.testDescription): sign-in worst \(signIn), calm \(calm); bus \(bus)")
        // A failed comparison of the arrays' elements would print all of them.
        let isSignOutSoon = signOut < max(crowd.limit, bus * 12)
        #expect(isSignOutSoon, "the five longest: \(signOuts.suffix(5))")
        // The password check needs most of a processor, of which the flood and the bus leave only a part.
        let isSignInSoon = signIn < max(crowd.limit, .seconds(1) + calm * 4)
        #expect(isSignInSoon, "the five longest: \(signIns.suffix(5))")
        let memory = try device.brokerMemory()
        #expect(memory < 200 << 20)
        #expect(hostile.isRunning, "\(hostile.errorText)")
        #expect(hostile.lines == ["ready"])
    }

    @Test(
        "a crowd on dbus-broker does not fill the broker's memory, and its effect ends",
        .enabled(if: Device.releasedProgram != nil, withoutReleasedBroker),
        .enabled(if: PrivateBus.Daemon.chosen == .broker, "on dbus-daemon a crowd delays no other client"),
        arguments: crowds
    )
    func endOfCrowd(crowd: Crowd) async throws {
        let (device, hostile, _) = try await flooded(by: crowd)
        // The time in which the queues of the bus fill up.
        try await Task.sleep(for: .seconds(2))
        hostile.kill()
        try await eventually("the broker has read the backlog, and a user signs in") {
            (try? await device.signIn()) != nil
        }
        try await device.signOut()
        let memory = try device.brokerMemory()
        #expect(memory < 200 << 20)
        let signOuts = try await signOutTimes(3, on: device)
        #expect(signOuts[2] < .seconds(1), "\(signOuts)")
    }

    @Test("an operator who polls without end delays neither sign-outs nor other consoles")
    func floodOfOperator() async throws {
        let device = try await Device(
            configuration: #"{"sharedDeviceMode": true, "passwordSignIn": true, "operators": ["nobody"]}"#
        )
        let calm = try await signOutTimes(3, on: device)[1]
        let before = try device.brokerMemory()
        let hostile = try await device.hostile("watches-device")
        defer { hostile.kill() }
        let waits = try await signOutTimes(8, on: device)
        let console = try BrokerAdministration(bus: device.bus.bus)
        var answers: [Duration] = []
        for _ in 0..<8 {
            let start = ContinuousClock.now
            let revision = try await console.call(.getStatus)["revision"]
            #expect(
                try await console.call(.getLog, ["limit": .uint64(500)])["entries"]?.elementsValue?.isEmpty == false
            )
            answers.append(.now - start)
            #expect(revision != nil)
        }
        answers.sort()
        print(
            "hostile operator: sign-out median \(waits[4]), worst \(waits[7]), calm \(calm); console median \(answers[4])"
        )
        // The broker carries out all calls of an operator, up to 256 of them before other callers'. That is slower than
        // for strangers, but bounded.
        #expect(waits[7] < .seconds(10), "\(waits)")
        #expect(answers[7] < .seconds(10), "\(answers)")
        let grown = try device.brokerMemory() - before
        #expect(grown < 100 << 20, "\(grown)")
        #expect(hostile.isRunning, "\(hostile.errorText)")
    }

    /// Returns the times of sign-outs, shortest first.
    private func signOutTimes(
        _ count: Int,
        on device: Device,
        addingSignIns isSignInCounted: Bool = false
    ) async throws -> [Duration] {
        try await StallWatch().times(count) {
            let beginning = ContinuousClock.now
            try await device.signIn()
            let start = isSignInCounted ? beginning : .now
            try await device.signOut()
            return .now - start
        }
    }

    /// The median time in which the bus answers a call to itself.
    private func busTime(on device: Device) async throws -> Duration {
        let connection = try DBusConnection.open(device.bus.bus)
        var times: [Duration] = []
        for _ in 0..<9 {
            let start = ContinuousClock.now
            _ = try await connection.callBus("GetId")
            times.append(.now - start)
        }
        return times.sorted()[4]
    }

    @Test(
        "a process whose root directory never responds delays only itself",
        .enabled(if: canMakeRoot, "needs root, a C compiler, and a /dev/fuse that other users can open")
    )
    func stuckRoot() async throws {
        let device = try await Device()
        let directory = try TemporaryDirectory("stuck")
        chmod(directory.path, 0o777)
        let source = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "Programs/stuck-root.c").path
        let program = "\(device.directory.path)/stuck-root"
        let compiler = try ChildProcess("cc", ["-O1", source, "-o", program])
        #expect(await compiler.exitStatus() == 0, "\(compiler.errorText)")
        let stuck = try ChildProcess(as: 65534, program, [device.bus.address, directory.path])
        defer { stuck.kill() }
        #expect(try await stuck.line { $0 == "ready" || $0.hasPrefix("cannot") } == "ready")
        let waits = try await signOutTimes(8, on: device)
        print("hostile stuck root: sign-out median \(waits[4]), worst \(waits[7])")
        #expect(waits[7] < .seconds(1), "\(waits)")
        #expect(stuck.isRunning, "\(stuck.errorText)")
    }

    // S9
    @Test(
        "a process with its own mount namespace is not taken for an enrolled app",
        .enabled(if: Rights.canMount, "nothing can be mounted here")
    )
    func forgedPath() async throws {
        let device = try await Device()
        try await device.signIn()
        // In that namespace the path of the manifest's program leads to another file.
        let script = """
            mount --bind "$1" "$2" && exec setpriv --reuid=65534 --regid=65534 --clear-groups "$2" "$3" names
            """
        let forger = try ChildProcess(
            "unshare",
            [
                "--mount", "sh", "-c", script, "sh", ChildProcess.built("hostile-client"), device.enrolledProgram,
                device.bus.address,
            ]
        )
        defer { forger.kill() }
        try await forger.line { $0 == "ready" }
        #expect(forger.lines.filter { $0.hasPrefix("LEAK") }.isEmpty, "\(forger.lines.prefix(5))")
    }

    // S3
    @Test(
        "on a full disk a sign-out takes effect, and a restart does not undo it",
        .enabled(if: Rights.canMount, "nothing can be mounted here")
    )
    func fullDisk() async throws {
        let device = try await Device(disk: .small)
        try await device.signIn()
        try device.fillDisk()
        let start = ContinuousClock.now
        try await device.signOut()
        #expect(ContinuousClock.now - start < .seconds(2))
        #expect(try await device.control.getCurrentAccount().current == nil)
        await #expect(throws: SharedDeviceError.self) { try await device.signIn() }
        device.killBroker()
        try await device.startBroker()
        #expect(try await device.control.getCurrentAccount().current == nil)
        device.freeDisk()
        try await eventually("there is room again, and a user signs in") { (try? await device.signIn()) != nil }
    }

    @Test(
        "on a frozen disk a sign-out takes effect, and is written after the thaw",
        .enabled(if: Rights.canMount && canFreeze, "no file system can be frozen here")
    )
    func frozenDisk() async throws {
        let device = try await Device(disk: .freezable)
        let waits = try await StallWatch().times(6) {
            try await device.signIn()
            try await device.freezeDisk()
            let start = ContinuousClock.now
            let time: Duration
            do {
                try await device.signOut()
                time = .now - start
                #expect(try await device.control.getCurrentAccount().current == nil)
            } catch {
                try await device.thawDisk()
                throw error
            }
            try await device.thawDisk()
            return time
        }
        print("frozen disk: sign-out median \(waits[waits.count / 2]), worst \(waits[waits.count - 1])")
        #expect(waits[waits.count - 1] < .seconds(1), "\(waits)")
        // The sign-out must be committed and not only announced.
        try await eventually("the disk has the sign-out") { try await device.isSignOutWritten() }
        device.killBroker()
        try await device.startBroker()
        #expect(try await device.control.getCurrentAccount().current == nil)
        try await device.signIn()
    }

    @Test("an enforcer outside its unit is refused, and exits so that it can be restarted")
    func strangeEnforcement() async throws {
        let device = try await Device()
        let enforcement = try ChildProcess(
            ChildProcess.built("shared-device-cleanup"),
            ["enforce", "--apps", "\(device.directory.path)/apps", "--state", "\(device.directory.path)/enforcement"],
            environment: ["DBUS_SYSTEM_BUS_ADDRESS": device.bus.address]
        )
        #expect(await enforcement.exitStatus(within: .seconds(60)) == EX_TEMPFAIL)
        #expect(enforcement.errorText.contains("only the unit shared-device-enforcement.service"))
    }

    @Test("another user cannot take the broker's name before its start or after its end")
    func squatting() async throws {
        let device = try await Device()
        device.killBroker()
        let squatter = try await device.hostile("squats")
        defer { squatter.kill() }
        try await device.startBroker()
        try await device.signIn()
        device.killBroker()
        let tried = squatter.lines.count
        try await eventually("the squatter tries again") { squatter.lines.count > tried }
        try await device.startBroker()
        #expect(try await device.control.getCurrentAccount().current?.username == "ada")
        #expect(squatter.lines.filter { $0.hasPrefix("LEAK") }.isEmpty, "\(squatter.lines.prefix(5))")
    }

    @Test("the broker follows its configuration even if all inotify instances are taken")
    func inotify() async throws {
        let device = try await Device()
        let hostile = try await device.hostile("watches")
        defer { hostile.kill() }
        for (organization, isRestarted) in [("Contoso", false), ("Fabrikam", true)] {
            // The broker also starts while all inotify instances are taken.
            if isRestarted {
                device.killBroker()
                try await device.startBroker()
            }
            try device.configure(
                #"{"sharedDeviceMode": true, "passwordSignIn": true, "organization": "\#(organization)"}"#
            )
            try await eventually("the broker has taken up \(organization)") {
                await device.control.getDeviceInformation().organization == organization
            }
        }
    }

    // MARK: The broker's own user

    @Test("files that root adds while the broker runs belong to the broker's user")
    func addedByRoot() async throws {
        let device = try await Device()
        try await device.addUser("grace")
        try await device.signIn("grace")
        try await device.signOut()
        for name in try FileManager.default.contentsOfDirectory(atPath: device.state) {
            let attributes = try FileManager.default.attributesOfItem(atPath: "\(device.state)/\(name)")
            #expect(attributes[.ownerAccountID] as? UInt32 == Device.brokerUser, "\(name)")
        }
        // The broker's user cannot redirect root's command by symbolic links.
        let secret = "\(device.directory.path)/secret"
        try "root's".write(toFile: secret, atomically: true, encoding: .utf8)
        device.killBroker()
        for name in ["shared-device.sqlite-wal", "shared-device.sqlite-shm"] {
            unlink("\(device.state)/\(name)")
            symlink(secret, "\(device.state)/\(name)")
        }
        try? await device.addUser("mallory")
        #expect(try String(contentsOfFile: secret, encoding: .utf8) == "root's")
    }
}
