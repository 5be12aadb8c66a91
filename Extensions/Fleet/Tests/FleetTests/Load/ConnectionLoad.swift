import Fleet
import FleetStage
import Glibc
import MQTTClient
import NotifyCenterTestKit

/// Many devices in a few processes, each device with a connection, a certificate and a thread, like agents. Uses
/// mosquitto with TLS and the access list of `Extensions/Fleet/Examples`, and the real controller.
package struct ConnectionLoad: Sendable {
    private let count: Int
    private let processes: Int

    /// - Parameter devices: a multiple of `processes`.
    package init(devices: Int, processes: Int) { (count, self.processes) = (devices, processes) }

    /// Runs the simulation and reports its steps.
    ///
    /// - Throws: `StateLoad.Violation` if a device counts as done before it is; `WaitFailure` if not all devices
    ///   finish.
    package func run(_ say: @escaping (String) -> Void) async throws {
        let begin = ContinuousClock.now
        let note = { (what: String) in say("\(StateLoad.seconds(begin.duration(to: .now))): \(what)") }
        // A connection takes four descriptors in the client process and one in the server, which inherits the limit.
        OpenFiles.raiseLimit()
        let stage = try await FleetStage()
        let certificates = try ChildProcess(
            "python3",
            [FleetStage.root + "/Tests/device-certificates", stage.path("pki"), "\(count)"]
        )
        guard await certificates.exitStatus() == 0 else {
            throw StateLoad.Violation(description: "no certificates: \(certificates.errorText)")
        }
        try await stage.startController()
        let controller = try ControllerQuestions(bus: stage.bus.address)
        try await controller.list((0..<count).map(SimulatedDevices.name))
        note("\(count) devices have certificates, and are listed")

        var meter = UsageMeter()
        let share = count / processes
        let clients = try (0..<processes).map { index in
            let range = [index * share, (index + 1) * share].map { "\($0)" }
            return try ChildProcess(
                ChildProcess.built("fleet-load"),
                ["--clients", stage.path("pki"), "--port", "\(stage.port)", "--from", range[0], "--to", range[1]]
            )
        }
        let all = { (meter: inout UsageMeter) in
            meter.read(stage.processes + clients.map { ("devices", $0.identifier) })
        }
        try await connected(clients, note, "connected by TLS with their certificates")
        all(&meter)
        try await order(controller, clients, note)

        all(&meter)
        try await stage.killEngine(losesData: true)
        try await stage.startEngine()
        for client in clients { try client.write("sign-in") }
        note("the server has lost its data")
        try await connected(clients, note, "connected again")
        try await order(controller, clients, note)
        all(&meter)
        say(meter.line)
    }

    private func connected(_ clients: [ChildProcess], _ note: (String) -> Void, _ what: String) async throws {
        let begin = ContinuousClock.now
        var lines: [String] = []
        do {
            try await eventually("all are connected", within: .seconds(400)) {
                let answer = try await counts(clients)
                if answer.connected == count { return true }
                lines = answer.lines
                try await Task.sleep(for: .milliseconds(200))
                return false
            }
        } catch {
            throw StateLoad.Violation(description: "\(error): \(lines)")
        }
        note("\(count) are \(what), after \(StateLoad.seconds(begin.duration(to: .now)))")
    }

    /// Orders a sign-out of all devices and waits until all are done.
    private func order(
        _ controller: ControllerQuestions,
        _ clients: [ChildProcess],
        _ note: (String) -> Void
    ) async throws {
        for client in clients { try client.write("begin") }
        _ = try await counts(clients)
        let begin = ContinuousClock.now
        _ = try await controller.signOutAll()
        var progress: ControllerQuestions.Progress
        repeat {
            guard begin.duration(to: .now) < .seconds(2 * ControllerState.heartbeatInterval) else {
                throw StateLoad.Violation(description: "not done within two heartbeats")
            }
            try await Task.sleep(for: .milliseconds(200))
            progress = try await controller.progress()
            // Counted afterwards, because a finished device stays finished.
            let done = try await counts(clients).done
            guard progress.done <= done, progress.total == count else {
                throw StateLoad.Violation(description: "\(progress.done) count as done, \(done) are: \(progress.line)")
            }
        } while progress.undone > 0
        note("an order is carried out by all, \(StateLoad.seconds(begin.duration(to: .now))) later: \(progress.line)")
    }

    /// Asks the processes how many of their devices are connected, and how many are done.
    private func counts(_ clients: [ChildProcess]) async throws -> (connected: Int, done: Int, lines: [String]) {
        let known = clients.map(\.lines.count)
        for client in clients { try client.write("count") }
        var lines: [String] = []
        for (client, before) in zip(clients, known) {
            try await eventually("a client process responds") {
                guard client.isRunning else { throw StateLoad.Violation(description: client.errorText) }
                return client.lines.count > before
            }
            lines.append(client.lines[before])
        }
        let numbers = lines.map { $0.split(separator: " ").prefix(2).map { Int($0) ?? 0 } }
        return (numbers.reduce(0) { $0 + $1[0] }, numbers.reduce(0) { $0 + $1[1] }, lines)
    }
}

/// The limit of open files of this process and its children.
enum OpenFiles {
    /// Raises the soft limit to the hard limit.
    static func raiseLimit() {
        var limit = rlimit()
        getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        limit.rlim_cur = limit.rlim_max
        setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    }
}

/// The client process. Its standard input controls the devices.
package struct LoadClients: Sendable {
    /// The number of simultaneous connection attempts, because a server accepts only so many at once.
    private static let atOnce = 32

    private let devices: [SimulatedDevices]
    private let options: [MQTTOptions]

    /// - Parameter folder: the directory with the authority and a certificate for each device.
    package init(_ range: Range<Int>, folder: String, port: UInt16) {
        let topics = FleetTopics(fleet: FleetStage.fleet)
        devices = range.compactMap { index in
            topics.map { SimulatedDevices(index..<index + 1, topics: $0, seed: UInt64(index), away: 0) }
        }
        options = range.map { index in
            let name = SimulatedDevices.name(index)
            var options = MQTTOptions(
                host: "localhost",
                port: port,
                clientIdentifier: name,
                certificates: .init(
                    authority: "\(folder)/authority.pem",
                    certificate: "\(folder)/\(name).pem",
                    key: "\(folder)/devices.key"
                )
            )
            let gone = FleetEvent(.presence(isOnline: false), source: name, identifier: "offline", time: nil)
            options.will = topics.map { topics in
                MQTTMessage(topic: topics.text(.presence(device: name)), payload: gone.bytes, isRetained: true)
            }
            return options
        }
    }

    /// Serves until the end of standard input. Blocks this thread.
    package func serve() throws {
        OpenFiles.raiseLimit()
        var (started, pending) = (0, "")
        while true {
            let connected = devices.count { $0.isConnected }
            let isStarting = started < devices.count
            while started < devices.count, started - connected < Self.atOnce {
                try devices[started].connect(options[started])
                started += 1
            }
            var watched = pollfd(fd: STDIN_FILENO, events: Int16(POLLIN), revents: 0)
            if poll(&watched, 1, isStarting ? 5 : 200) > 0 {
                var bytes = [UInt8](repeating: 0, count: 4096)
                let count = read(STDIN_FILENO, &bytes, bytes.count)
                guard count > 0 else { return }
                // Several lines may arrive at once.
                let lines = (pending + String(decoding: bytes.prefix(count), as: UTF8.self)).split(
                    separator: "\n",
                    omittingEmptySubsequences: false
                )
                for line in lines.dropLast() { obey(line, connected) }
                pending = String(lines.last ?? "")
            }
            for device in devices.prefix(started) { device.tick(flapping: false) }
        }
    }

    private func obey(_ line: Substring, _ connected: Int) {
        switch line {
        case "begin": for device in devices { device.begin() }
        case "sign-in": for device in devices { device.signIn() }
        default:
            let problem = devices.lazy.filter { !$0.isConnected }.compactMap(\.problem).first
            print(connected, devices.reduce(0) { $0 + $1.done }, problem.map { "\($0)" } ?? "")
            fflush(nil)
        }
    }
}
