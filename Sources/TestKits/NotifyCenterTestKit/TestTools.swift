import DBusTransport
import Dispatch
import FoundationEssentials
import Glibc
import Synchronization

/// A directory that is removed when this object goes.
public final class TemporaryDirectory: Sendable {
    /// Its absolute path.
    public let path: String

    /// Makes a directory that only this user can read.
    ///
    /// - Throws: ``ChildProcess/Failure`` if that is impossible, with the folder and the remedy.
    public init(_ name: String) throws {
        let folder = FileManager.default.temporaryDirectory.path
        path = folder + "/\(name)-\(UUID().uuidString.prefix(8))"
        guard let code = Interruption.make(path) else { return }
        throw ChildProcess.Failure(
            "cannot make a folder in \(folder): \(String(cString: strerror(code))); name another place in TMPDIR"
        )
    }

    deinit {
        // If that fails, the system's cleaning of temporary files removes it.
        try? FileManager.default.removeItem(atPath: path)
        Interruption.forget(path)
    }
}

extension TemporaryDirectory {
    /// Writes a shell script that is ready to run, and returns its path.
    ///
    /// Another process writes it. A file that this process has open for writing is open for a moment in children that other threads start,
    /// too, and the kernel runs no program that is open for writing (`ETXTBSY`).
    package func writeScript(_ name: String, _ body: String) throws -> String {
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

/// Waits, without holding a thread, until `condition` holds. Asks at once, then again and again: after 2 ms where an answer takes no time; after four times
/// as long as the answer took, and half a second at most, so that waiting leaves the processors to what is waited for.
///
/// - Throws: ``WaitFailure`` if time runs out, or `CancellationError` if the task is cancelled; also what `condition` throws.
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

    /// What the test waited for, and how long.
    public var description: String { "\(what) did not come true within \(timeout)" }
}

// MARK: Ports

/// A port of 127.0.0.1 for a server that a test starts. Nobody listens there, and this process has handed it out to nobody else.
///
/// It is below those that the kernel usually gives to whoever connects: one of these may be taken before the server has started.
///
/// - Throws: ``ChildProcess/Failure`` where no port is free.
package func freePort() throws -> UInt16 {
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

    /// Processes that run at a time mostly begin at different ones.
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
    // A process that another test starts at this moment has a copy of this socket, and must not keep the server off.
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

/// Runs what blocks, or computes for long, on a thread of its own: those of Dispatch's global queues are the ones that all tests' tasks run on.
///
/// - Throws: what `body` throws.
package func onThread<Value: Sendable, Failure: Error>(
    _ body: @escaping @Sendable () throws(Failure) -> Value
) async throws(Failure) -> Value {
    let result: Result<Value, Failure> = await withCheckedContinuation { continuation in
        detachThread { continuation.resume(returning: Result(catching: body)) }
    }
    return try result.get()
}

/// Runs `body` on a thread of its own, for which nobody waits. Where the system grants no thread, the test ends here: it would wait for ever.
func detachThread(_ body: @escaping @Sendable () -> Void) {
    guard QuietThread.start("test kit", body) == nil else { return }
    fatalError("the system grants no thread: \(String(cString: strerror(errno)))")
}

/// Runs the tasks of a test that judges how long something takes on a thread that other tests cannot keep busy: what computes in them keeps the two
/// threads of a small machine's pool for seconds. Use it with `withTaskExecutorPreference(_:operation:)`.
package final class OwnThread: TaskExecutor {
    private let queue = DispatchQueue(label: "own thread")

    package init() {}

    package func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        queue.async { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
    }
}
