import Basics
import DBus
import FoundationEssentials
import Glibc
import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Synchronization

/// An app of a test device, across restarts of its process. An identifier stands for one app, with its directories.
///
/// This object keeps bus and broker alive. The process is killed when this object is released.
public final class DeviceApp: Sendable {
    private struct Life {
        var process: ChildProcess?
        var earlierLines: [String] = []
        var earlierErrors: [String] = []
        /// The end of the last process; `nil` while it runs, and before the first start.
        var end: (status: Int32, instant: ContinuousClock.Instant)?
        var isKilled = false
        /// Whether the test has stopped it.
        var isHeld = false
    }

    /// The test's description, with the placeholders replaced.
    public let description: TestApp
    /// The path of the program.
    public let executable: String
    /// The parent of the app's own directories.
    public let home: String
    let host: DeviceHost
    private let life = Locked(Life())

    /// - Throws: ``TestDeviceError/Code/programMissing``, ``TestDeviceError/Code/filesFailed``.
    init(_ app: TestApp, on host: DeviceHost) throws(TestDeviceError) {
        self.host = host
        executable = try host.programs.path(of: app.executable)
        let home = host.home(of: app.identifier)
        self.home = home
        let replace: (String) -> String = { text in
            let values = [
                ("{bus}", host.bus.address), ("{data}", "\(home)/data"), ("{state}", "\(home)/state"),
                ("{home}", home), ("{programs}", host.programs.directory),
            ]
            return values.reduce(text) { $0.replacing($1.0, with: $1.1) }
        }
        var description = app
        description.arguments = app.arguments.map(replace)
        description.environment = app.environment.mapValues(replace)
        description.dataDirectories = app.dataDirectories.map(replace)
        self.description = description
        do {
            for name in ["data", "state", "cache", "config", "tmp"] {
                try FileManager.default.createDirectory(atPath: "\(home)/\(name)", withIntermediateDirectories: true)
            }
            if app.busName != nil { try writeScript() }
        } catch {
            let reason = "could not make the directories of \(app.identifier): \(systemReason(error))"
            throw TestDeviceError(.filesFailed, reason)
        }
    }

    deinit {
        if processIdentifier != nil {
            signal(SIGKILL)
            life.withLock { $0.process }?.waitUntilExit()
        }
        // Processes that the bus started, or that the app left behind, are not children of this process.
        for _ in 0..<1000 {
            let left = ProcessState.alive(withEnvironment: "\(Self.variable)=\(home)")
            if left.isEmpty { break }
            for process in left { _ = Glibc.kill(process, SIGKILL) }
            usleep(1_000)
        }
    }

    /// The app's identifier.
    public var identifier: String { description.identifier }

    /// The directories that searches cover: the app's own and ``TestApp/dataDirectories``.
    public var directories: [String] { [home] + description.dataDirectories }

    // MARK: Lifetime

    /// Starts a process of the app. Does nothing if one is running.
    ///
    /// - Throws: ``TestDeviceError/Code/programMissing``.
    public func start() throws(TestDeviceError) {
        guard processIdentifier == nil else { return }
        let process: ChildProcess
        do {
            process = try ChildProcess(executable, description.arguments, environment: environment)
        } catch {
            throw TestDeviceError(.programMissing, "\(identifier) does not start: \(error)")
        }
        life.withLock { life in
            if let earlier = life.process {
                life.earlierLines += earlier.lines
                life.earlierErrors.append(earlier.errorText)
            }
            (life.process, life.end, life.isKilled, life.isHeld) = (process, nil, false, false)
        }
        host.log.add(identifier, .started, "starts, as process \(process.identifier)")
        Task { [weak self] in
            let status = await process.exitStatus(within: nil)
            self?.ended(process, status)
        }
    }

    /// Stops the process (SIGSTOP), like a suspended app. On return it has stopped.
    ///
    /// - Throws: ``TestDeviceError/Code/notThere`` if it does not run.
    public func stop() async throws(TestDeviceError) {
        let process = try running("stop")
        stopSoon()
        while let letter = ProcessState.letter(of: process), !"TZ".contains(letter) {
            try? await Task.sleep(for: .milliseconds(1))
        }
    }

    func stopSoon() {
        life.withLock { $0.isHeld = true }
        signal(SIGSTOP)
        host.log.add(identifier, .stopped, "is stopped (SIGSTOP)")
    }

    /// Resumes the process (SIGCONT).
    ///
    /// - Throws: ``TestDeviceError/Code/notThere`` if it does not run.
    public func resume() throws(TestDeviceError) {
        _ = try running("resume")
        host.log.add(identifier, .continued, "goes on (SIGCONT)")
        life.withLock { $0.isHeld = false }
        signal(SIGCONT)
    }

    /// Kills the process without a chance to clean up (SIGKILL). On return it has ended.
    ///
    /// - Throws: ``TestDeviceError/Code/notThere`` if it does not run.
    public func kill() async throws(TestDeviceError) {
        let process = try running("kill")
        host.log.add(identifier, .killed, "is killed (SIGKILL)")
        life.withLock { $0.isKilled = true }
        signal(SIGKILL)
        while processIdentifier == process { try? await Task.sleep(for: .milliseconds(1)) }
    }

    /// Sends a signal.
    ///
    /// - Throws: ``TestDeviceError/Code/notThere`` if it does not run.
    public func send(_ signal: Int32) throws(TestDeviceError) {
        _ = try running("send a signal to")
        self.signal(signal)
    }

    /// Whether the app has a process, started by this object or by the bus. A stopped process counts.
    public var isRunning: Bool { processIdentifier != nil }
    /// Whether it is stopped.
    public var isStopped: Bool { processIdentifier.map(ProcessState.isStopped) ?? false }
    /// The process id; `nil` if it does not run.
    public var processIdentifier: Int32? {
        if let process = life.withLock({ $0.process }), process.isRunning { return process.identifier }
        return activated
    }

    var end: (status: Int32, instant: ContinuousClock.Instant)? { isRunning ? nil : life.withLock { $0.end } }

    /// The exit status of the last process; `nil` while it runs, or if the test killed it.
    var unexpectedEnd: Int32? { life.withLock { $0.isKilled } ? nil : end?.status }

    /// Whether its process has ended by itself, but its exit status is not known yet.
    var isEnding: Bool {
        let life = life.withLock { $0 }
        return life.process.map { !$0.isRunning } ?? false && life.end == nil && !life.isKilled
    }

    private func ended(_ process: ChildProcess, _ status: Int32) {
        let isCurrent = life.withLock { life -> Bool in
            guard life.process === process else { return false }
            life.end = (status, .now)
            return true
        }
        if isCurrent { host.log.add(identifier, .ended, "has ended, \(Self.text(status: status))") }
    }

    static func text(status: Int32) -> String { status > 128 ? "by signal \(status - 128)" : "with status \(status)" }

    private func signal(_ number: Int32) {
        if let process = life.withLock({ $0.process }), process.isRunning {
            process.send(number)
        } else if let process = activated {
            _ = Glibc.kill(process, number)
        }
    }

    private func running(_ what: String) throws(TestDeviceError) -> Int32 {
        if let process = processIdentifier { return process }
        throw TestDeviceError(.notThere, "cannot \(what) \(identifier): it does not run")
    }

    // MARK: Input and output

    /// Writes a line to its standard input.
    ///
    /// - Throws: ``TestDeviceError/Code/notThere`` if the app does not run, the bus started it, or it does not read.
    public func write(_ line: String) throws(TestDeviceError) {
        guard let process = life.withLock({ $0.process }), process.isRunning else {
            throw TestDeviceError(.notThere, "cannot write to \(identifier): no process of it was started here")
        }
        do {
            try process.write(line)
        } catch {
            throw TestDeviceError(.notThere, "cannot write to \(identifier): \(error)")
        }
    }

    /// The lines on standard output of all processes of the app.
    public var lines: [String] {
        let (earlier, process) = life.withLock { ($0.earlierLines, $0.process) }
        return earlier + (process?.lines ?? [])
    }

    /// The text on standard error of all processes of the app.
    public var errorText: String {
        let (earlier, process) = life.withLock { ($0.earlierErrors, $0.process) }
        return (earlier + [process?.errorText ?? ""]).filter { !$0.isEmpty }.joined(separator: "\n")
    }

    /// Waits for the whole output of an ended process, for at most two seconds: a child of it may still write.
    func outputIsComplete() async {
        guard let process = life.withLock({ $0.process }) else { return }
        _ = try? await process.line(within: .seconds(2)) { _ in false }
    }

    /// Waits for a line that `matches`, after the first `mark` lines, and returns it.
    ///
    /// - Throws: ``TestDeviceError/Code/timeout`` with the app's output, if the app ends or time runs out first.
    @discardableResult
    public func line(
        after mark: Int = 0,
        within timeout: Duration = .seconds(60),
        where matches: @Sendable (String) -> Bool
    ) async throws(TestDeviceError) -> String {
        try await wait(within: timeout, "no such line from \(identifier)", pause: Wait.pause) {
            lines.dropFirst(mark).first(where: matches)
        }
    }

    /// Looks again and again until `look` returns a value, the app ends or time runs out.
    private func wait<Value>(
        within timeout: Duration,
        _ what: String,
        pause: Duration,
        until look: () throws(TestDeviceError) -> Value?
    ) async throws(TestDeviceError) -> Value {
        let deadline = ContinuousClock.now + timeout
        while true {
            let hasEnded = !isRunning
            if let value = try look() { return value }
            guard !hasEnded, ContinuousClock.now < deadline, !Task.isCancelled else {
                let reason = hasEnded ? "it ended" : "time ran out (\(timeout)), or the task was cancelled"
                throw TestDeviceError(.timeout, "\(what) before \(reason). \(written)")
            }
            try? await Task.sleep(for: pause)
        }
    }

    private var written: String {
        let written = (lines.suffix(20) + [errorText]).filter { !$0.isEmpty }
        guard written.isEmpty else { return "It wrote:\n\(written.joined(separator: "\n"))" }
        return "It wrote nothing. Its standard output is a pipe, which gets a line only when the app flushes it; "
            + "call fflush(nil) after print, or wait for its data with waitForMarker"
    }

    // MARK: Data

    /// Waits until `marker` is in the app's directories. It works with any program, whatever its output.
    ///
    /// - Throws: ``TestDeviceError/Code/timeout`` with the app's output, if the app ends or time runs out first;
    ///   ``TestDeviceError/Code/filesFailed``.
    public func waitForMarker(_ marker: Marker, within timeout: Duration = .seconds(60)) async throws(TestDeviceError) {
        // Each search stops the app for a moment, so the pause gives the app time to work.
        let what = "\(marker.kind) was not in the data of \(identifier)"
        _ = try await wait(within: timeout, what, pause: .milliseconds(20)) { () throws(TestDeviceError) in
            try findings(of: [marker]).first
        }
    }

    /// The occurrences of markers in the app's directories: in names and contents, in UTF-8 and UTF-16. Paths are
    /// relative to ``home``, or absolute. A running app is stopped during the search. The search blocks this thread.
    ///
    /// - Throws: ``TestDeviceError/Code/filesFailed``.
    public func findings(of markers: [Marker]) throws(TestDeviceError) -> [ByteSearch.Finding] {
        let isToStop = isRunning && !isStopped
        if isToStop {
            // This stop is not a fault injected by the test, so the timeline omits it.
            signal(SIGSTOP)
            while let process = processIdentifier, !ProcessState.isStopped(process) { usleep(500) }
        }
        // The test may have stopped the app for longer in the meantime.
        defer { if isToStop, !life.withLock({ $0.isHeld }) { signal(SIGCONT) } }
        return try Self.findings(of: markers, in: directories)
    }

    static func findings(
        of markers: [Marker],
        in directories: [String]
    ) throws(TestDeviceError) -> [ByteSearch.Finding] {
        let search = ByteSearch(markers)
        var found: [ByteSearch.Finding] = []
        for (index, directory) in directories.enumerated() {
            for var finding in try search.run(under: directory).findings {
                if index > 0 { finding.path = "\(directory)/\(finding.path)" }
                found.append(finding)
            }
        }
        return found
    }

    // MARK: Environment

    private var environment: [String: String] {
        let own = [
            "XDG_DATA_HOME": "\(home)/data", "XDG_STATE_HOME": "\(home)/state", "XDG_CACHE_HOME": "\(home)/cache",
            "XDG_CONFIG_HOME": "\(home)/config", "TMPDIR": "\(home)/tmp", Self.variable: home,
        ]
        return host.bus.environment.merging(own) { $1 }.merging(description.environment) { $1 }
    }

    /// The variable that identifies processes of this app that the kit did not start itself.
    private static let variable = "SHARED_DEVICE_TEST_APP"

    private var activated: Int32? {
        guard description.busName != nil, let text = try? String(contentsOfFile: "\(home).pid", encoding: .utf8),
            let identifier = text.split(whereSeparator: \.isWhitespace).first.flatMap({ Int32($0) }), identifier > 1,
            ProcessState.isAlive(identifier, withEnvironment: "\(Self.variable)=\(home)")
        else { return nil }
        return identifier
    }

    /// Writes the script that the bus runs. It writes its process id to a file, and executes the app under that id.
    private func writeScript() throws {
        let variables = environment.sorted { $0.key < $1.key }.map { DeviceHost.quoted("\($0.key)=\($0.value)") }
        let command = ([executable] + description.arguments).map(DeviceHost.quoted)
        let line = (["exec", "env"] + variables + command).joined(separator: " ")
        // The kit neither reads its output nor writes to its input.
        let text =
            "echo $$ > \(DeviceHost.quoted("\(home).pid"))\n\(line) < /dev/null > \(DeviceHost.quoted("\(home).output")) 2>&1\n"
        try text.write(toFile: "\(home).sh", atomically: true, encoding: .utf8)
    }
}

enum Wait {
    /// The interval between two checks of a condition: too short to be noticed.
    static let pause = Duration.milliseconds(2)

    static func moment() async { try? await Task.sleep(for: pause) }
}
