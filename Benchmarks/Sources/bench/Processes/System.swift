import Glibc
import Synchronization

struct BenchmarkError: Error, Equatable, CustomStringConvertible {
    enum Code {
        /// A program could not be started, or a system call failed.
        case systemCall
        /// A required program is missing on this machine.
        case missingProgram
        /// A peer ended, or was silent for too long.
        case peer
        /// A peer printed text that the driver does not understand.
        case malformedResult
        /// The numbers cannot be right: posts were lost, or a time is negative.
        case wrongCount
        /// SIGINT, SIGTERM or SIGHUP.
        case interrupted
    }

    let code: Code
    let description: String

    init(_ code: Code, _ description: String) {
        self.code = code
        self.description = description
    }
}

/// Turns SIGINT, SIGTERM and SIGHUP into an error at the next wait, so that the bus, the peers and the temporary folder
/// are removed as usual.
enum Interruption {
    private static let requested = Atomic(false)

    static func watch() {
        // Initialised before a handler can run: the first access to a static may take a lock.
        requested.store(false, ordering: .relaxed)
        for number in [SIGINT, SIGTERM, SIGHUP] {
            signal(number) { _ in Interruption.requested.store(true, ordering: .relaxed) }
        }
    }

    /// Throws `.interrupted` once a signal has come.
    static func check() throws(BenchmarkError) {
        if requested.load(ordering: .relaxed) { throw BenchmarkError(.interrupted, "interrupted") }
    }
}

/// Nanoseconds of CLOCK_MONOTONIC, the clock that the peers use too.
func monotonicNanoseconds() -> Int {
    var time = timespec()
    clock_gettime(CLOCK_MONOTONIC, &time)
    return time.tv_sec * 1_000_000_000 + time.tv_nsec
}

// MARK: Files and pipes

/// A file's whole text; `nil` if the file cannot be read. Works for files under /proc, which report no size.
func readText(_ path: String) -> String? {
    let descriptor = open(path, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else { return nil }
    defer { close(descriptor) }
    var bytes: [UInt8] = []
    var chunk = [UInt8](repeating: 0, count: 16_384)
    while true {
        let count = read(descriptor, &chunk, chunk.count)
        if count == 0 { return String(decoding: bytes, as: UTF8.self) }
        if count < 0 {
            guard errno == EINTR else { return nil }
            continue
        }
        bytes += chunk[..<count]
    }
}

/// Throws `.systemCall` if the file cannot be created or written.
func writeText(_ text: String, to path: String) throws(BenchmarkError) {
    guard let file = fopen(path, "we") else { throw systemError("creating \(path)", errno) }
    let written = fputs(text, file)
    let closed = fclose(file)
    guard written >= 0, closed == 0 else { throw systemError("writing \(path)", errno) }
}

/// Makes a new temporary folder for this run. Throws `.systemCall`.
func makeFolder(in parent: String) throws(BenchmarkError) -> String {
    var template = Array("\(parent)/notify-center-bench-XXXXXX".utf8CString)
    guard mkdtemp(&template) != nil else { throw systemError("creating a folder in \(parent)", errno) }
    return String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
}

/// A pipe that a child inherits only if it is passed to it. Throws `.systemCall`.
func makePipe() throws(BenchmarkError) -> (read: Int32, write: Int32) {
    var ends: [Int32] = [-1, -1]
    guard pipe(&ends) == 0 else { throw systemError("pipe", errno) }
    // No other thread spawns between the two calls: the driver has one thread.
    for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
    return (ends[0], ends[1])
}

func systemError(_ attempt: String, _ number: Int32) -> BenchmarkError {
    BenchmarkError(.systemCall, "\(attempt): \(String(cString: strerror(number)))")
}

/// The first executable of that name in `PATH`, or `nil`.
func program(_ name: String) -> String? {
    let path = getenv("PATH").map { String(cString: $0) } ?? "/usr/local/bin:/usr/bin:/bin"
    return path.split(separator: ":").map { "\($0)/\(name)" }.first { access($0, X_OK) == 0 }
}
