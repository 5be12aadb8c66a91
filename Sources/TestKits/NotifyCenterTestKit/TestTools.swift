import Basics
import DBus
import Dispatch
import FoundationEssentials
import Glibc
import Synchronization

/// A directory that is removed when this object is released.
public final class TemporaryDirectory: Sendable {
    /// The path, in the directory that `TMPDIR` names, by default `/tmp`.
    public let path: String

    /// Creates a directory that only this user can read. Its name begins with `name`, and ends with a random part.
    ///
    /// - Throws: ``ChildProcess/Failure`` on failure, with the folder and the remedy.
    public init(_ name: String) throws {
        let folder = FileManager.default.temporaryDirectory.path
        path = folder + "/\(name)-\(UUID().uuidString.prefix(8))"
        guard let code = Interruption.make(path) else { return }
        throw ChildProcess.Failure(
            "cannot make a folder in \(folder): \(String(cString: strerror(code))); name another place in TMPDIR"
        )
    }

    deinit {
        // On failure the system's cleanup of temporary files removes it.
        try? FileManager.default.removeItem(atPath: path)
        Interruption.forget(path)
    }
}

extension TemporaryDirectory {
    /// Writes an executable shell script, and returns its path.
    ///
    /// A separate process writes it. If this process wrote it, children started by other threads could inherit the open
    /// descriptor for a moment. The kernel refuses to execute a file that is open for writing (`ETXTBSY`).
    @_spi(Extensions) public func writeScript(_ name: String, _ body: String) throws -> String {
        let script = "\(path)/\(name)"
        let writer = try ChildProcess(
            "/bin/sh",
            ["-c", #"printf '#!/bin/sh\n%s\n' "$2" > "$1" && chmod 755 "$1""#, "sh", script, body]
        )
        guard writer.waitUntilExit() == 0 else {
            throw ChildProcess.Failure("could not write \(script): \(writer.errorText)")
        }
        return script
    }
}

// MARK: Waiting

/// Waits, without blocking a thread, until `condition` holds. It is evaluated at once, and then repeatedly. The pause
/// is four times the duration of the last evaluation, at least 2 ms and at most 500 ms, so that waiting leaves the
/// processors to the work it waits for.
///
/// - Throws: ``WaitFailure`` if time runs out, or `CancellationError` if the task is cancelled; also the errors of
///   `condition`.
public func eventually(
    _ what: String = "the condition",
    within timeout: Duration = .seconds(120),
    _ condition: () async throws -> Bool
) async throws {
    let deadline = ContinuousClock.now + timeout
    while true {
        let asked = ContinuousClock.now
        if try await condition() { return }
        let answered = ContinuousClock.now
        guard answered < deadline else { throw WaitFailure(what: what, timeout: timeout) }
        try await Task.sleep(for: min(max((answered - asked) * 4, .milliseconds(2)), .milliseconds(500)))
    }
}

/// A condition that did not come true in time.
public struct WaitFailure: Error, CustomStringConvertible {
    let what: String
    let timeout: Duration

    /// The condition and the time limit.
    public var description: String { "\(what) did not come true within \(timeout)" }
}

// MARK: Ports

/// A free port of 127.0.0.1 for a server that a test starts. This process hands out each port once until all have been
/// used.
///
/// The port is below the kernel's usual range of ephemeral ports, which might be taken by a client before the server
/// has started.
///
/// - Throws: ``ChildProcess/Failure`` if no port is free.
@_spi(Extensions) public func freePort() throws -> UInt16 {
    for _ in handedOut.all {
        let port = handedOut.next()
        if isFree(port) { return port }
    }
    throw ChildProcess.Failure("of the ports \(handedOut.all) none is free")
}

private let handedOut = HandedOutPorts()

private final class HandedOutPorts: Sendable {
    let all: ClosedRange<UInt16> = 20_000...31_999
    private let last = Locked<UInt16?>(nil)

    /// Concurrent processes mostly start at different ports.
    func next() -> UInt16 {
        last.withLock { last in
            let next = last.map { $0 + 1 } ?? all.lowerBound + UInt16(getpid() % 120) * 100
            let port = all.contains(next) ? next : all.lowerBound
            last = port
            return port
        }
    }
}

private func isFree(_ port: UInt16) -> Bool {
    let descriptor = socket(AF_INET, CInt(SOCK_STREAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue), 0)
    defer { close(descriptor) }
    // A child that another test starts at this moment inherits a copy of this socket, which must not block the server.
    var yes: CInt = 1
    setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, socklen_t(MemoryLayout<CInt>.size))
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_addr.s_addr = inet_addr("127.0.0.1")
    address.sin_port = port.bigEndian
    return withUnsafePointer(to: &address) { pointer in
        pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
            bind(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size)) == 0
        }
    }
}

// MARK: Threads

/// Runs blocking or long work on a separate thread, because the tests' tasks run on the threads of Dispatch's global
/// queues.
@_spi(Extensions) public func onThread<Value: Sendable, Failure: Error>(
    _ body: @escaping @Sendable () throws(Failure) -> Value
) async throws(Failure) -> Value {
    let result: Result<Value, Failure> = await withCheckedContinuation { continuation in
        detachThread { continuation.resume(returning: Result(catching: body)) }
    }
    return try result.get()
}

/// Runs `body` on a detached thread. If the system grants no thread, the test process crashes here, because the test
/// would wait for ever.
func detachThread(_ body: @escaping @Sendable () -> Void) {
    guard QuietThread.start("test kit", body) == nil else { return }
    fatalError("the system grants no thread: \(String(cString: strerror(errno)))")
}

/// Runs the tasks of a timing-sensitive test on a thread that other tests cannot occupy: their computations can block
/// the two pool threads of a small machine for seconds. Use it with `withTaskExecutorPreference(_:operation:)`.
@_spi(Extensions) public final class OwnThread: TaskExecutor {
    private let queue = DispatchQueue(label: "own thread")

    @_spi(Extensions) public init() {}

    @_spi(Extensions) public func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        queue.async { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
    }
}
