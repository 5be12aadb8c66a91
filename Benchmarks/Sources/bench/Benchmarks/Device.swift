import Glibc

/// A shared device for one benchmark: a broker with one user, and apps that follow the account. The object's
/// deallocation ends them and removes their state.
final class Device {
    /// A place for state on the disk, where a write ends when the disk has the data.
    static let disk = "/var/tmp"
    /// A place for state in memory, or `nil` if the system has none.
    static let memory = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : nil

    private static let user = "ada@example.com"
    private static let password = "a password of the benchmarks"

    let broker: Peer
    private let bus: PrivateBus
    private let folder: String
    private let setting: Setting
    private var followers: [Peer] = []

    /// Starts the broker. The state of the broker and of the apps is in a new folder in `parent`. A bus has one device
    /// at a time. Throws `.systemCall`, and `.peer` if the broker does not start.
    init(in parent: String, on bus: PrivateBus, _ setting: Setting) throws(BenchmarkError) {
        let folder = try makeFolder(in: parent)
        do throws(BenchmarkError) {
            let configuration = "\(folder)/configuration.json"
            try writeText(
                #"{"sharedDeviceMode": true, "passwordSignIn": true, "cleanupPolicy": "advisory"}"#,
                to: configuration
            )
            try Self.addUser(to: "\(folder)/broker", setting)
            broker = try Peer(
                setting.programs.sharedDevice.broker,
                [
                    "--state", "\(folder)/broker", "--configuration", configuration, "--login-bus", bus.address,
                    "--log-level", "error",
                ],
                on: bus
            )
            try broker.waitUntilReady()
        } catch {
            removeFolder(folder)
            throw error
        }
        self.bus = bus
        self.folder = folder
        self.setting = setting
    }

    deinit {
        for follower in followers { follower.stop() }
        broker.stop()
        removeFolder(folder)
    }

    /// Starts apps, one process each, until `count` of them follow the account.
    func follow(_ count: Int) throws(BenchmarkError) {
        let new = try (followers.count..<max(count, followers.count)).map { number throws(BenchmarkError) in
            try app("follow", "org.example.follower\(number)")
        }
        for follower in new { try follower.waitUntilReady() }
        followers += new
    }

    /// Starts an app that signs a user in and stays. On return all followers have the account.
    func signIn() throws(BenchmarkError) -> Peer {
        let peer = try app("sign-in", "org.example.desk", Self.user, Self.password, "\(followers.count)")
        try peer.waitUntilReady()
        return peer
    }

    /// Starts an app that signs out `count` times and waits for all receipts. Returns the median. Before each sign-out
    /// all followers and the app itself have the account.
    func nanosecondsPerSignOut(count: Int) throws(BenchmarkError) -> Double {
        let arguments = [Self.user, Self.password, "\(count)", "\(followers.count)"]
        let peer = try app("sign-out", "org.example.desk", arguments)
        defer { peer.stop() }
        try peer.waitUntilReady()
        return Double(try peer.result().integer("median-ns"))
    }

    /// Starts an app that makes `count` requests of one kind in sequence. Returns the median.
    func nanosecondsPerRequest(_ role: String, count: Int) throws(BenchmarkError) -> Double {
        let peer = try app(role, "org.example.reader", "\(count)")
        defer { peer.stop() }
        try peer.waitUntilReady()
        return Double(try peer.result().integer("median-ns"))
    }

    private func app(_ role: String, _ identifier: String, _ rest: String...) throws(BenchmarkError) -> Peer {
        try app(role, identifier, rest)
    }

    private func app(_ role: String, _ identifier: String, _ rest: [String]) throws(BenchmarkError) -> Peer {
        try Peer(setting.programs.sharedDevice.app, [role, identifier, "\(folder)/\(identifier)"] + rest, on: bus)
    }

    private static func addUser(to state: String, _ setting: Setting) throws(BenchmarkError) {
        let ends = try makePipe()
        defer { close(ends.read) }
        let line = Array("\(password)\n".utf8)
        let written = write(ends.write, line, line.count)
        close(ends.write)
        guard written == line.count else { throw systemError("handing over a password", errno) }
        let command = Command(
            program: setting.programs.sharedDevice.administration,
            arguments: ["user", "add", user, "--state", state, "--password-stdin"]
        )
        let status = reap(try spawn(command, Streams(input: ends.read)))
        guard status == 0 else { throw BenchmarkError(.peer, "no user could be added (wait status \(status))") }
    }
}

/// A file that cannot be removed stays, because nothing depends on it.
private func removeFolder(_ folder: String) {
    guard let remove = program("rm") else { return }
    if let process = try? spawn(Command(program: remove, arguments: ["-rf", "--", folder]), Streams()) {
        reap(process)
    }
}
