import Glibc

/// A program under way whose output is read line by line. It is killed when this object goes, if not before.
final class ChildProcess {
    let name: String
    let identifier: pid_t

    private let output: Int32
    private var unread: [UInt8] = []
    private var isRunning = true

    /// Starts the program with its standard output connected to this object. Throws `.systemCall`.
    init(_ command: Command, errors: Int32? = STDERR_FILENO) throws(BenchmarkError) {
        name = ([command.program.split(separator: "/").last.map(String.init) ?? ""] + command.arguments)
            .joined(separator: " ")
        let ends = try makePipe()
        defer { close(ends.write) }
        do {
            identifier = try spawn(command.dyingWithParent, Streams(output: ends.write, error: errors))
        } catch {
            close(ends.read)
            throw error
        }
        output = ends.read
    }

    deinit {
        stop()
        close(output)
    }

    /// The next line of output, without its newline. Throws `.peer` where the output ends or nothing comes until
    /// `deadline` (nanoseconds of CLOCK_MONOTONIC), `.systemCall`, and `.interrupted`.
    func line(before deadline: Int) throws(BenchmarkError) -> String {
        while true {
            if let end = unread.firstIndex(of: UInt8(ascii: "\n")) {
                defer { unread.removeSubrange(...end) }
                return String(decoding: unread[..<end], as: UTF8.self)
            }
            guard try readMore(before: deadline) else {
                throw BenchmarkError(.peer, "\"\(name)\" ended without a result")
            }
        }
    }

    /// The rest of the output, to its end. Throws as `line(before:)` does.
    func remainder(before deadline: Int) throws(BenchmarkError) -> String {
        while try readMore(before: deadline) {}
        defer { unread = [] }
        return String(decoding: unread, as: UTF8.self)
    }

    /// Kills the program and waits until it is gone.
    func stop() {
        guard isRunning else { return }
        isRunning = false
        kill(identifier, SIGKILL)
        reap(identifier)
    }

    /// Waits for output and appends it to `unread`. False at the end of the output.
    private func readMore(before deadline: Int) throws(BenchmarkError) -> Bool {
        var chunk = [UInt8](repeating: 0, count: 16_384)
        while true {
            try waitForOutput(before: deadline)
            let count = read(output, &chunk, chunk.count)
            if count >= 0 {
                unread += chunk[..<count]
                return count > 0
            }
            guard errno == EINTR else { throw systemError("reading from \"\(name)\"", errno) }
        }
    }

    private func waitForOutput(before deadline: Int) throws(BenchmarkError) {
        while true {
            try Interruption.check()
            let left = deadline - monotonicNanoseconds()
            guard left > 0 else { throw BenchmarkError(.peer, "\"\(name)\" did not answer in time") }
            var descriptor = pollfd(fd: output, events: Int16(POLLIN), revents: 0)
            let ready = poll(&descriptor, 1, Int32(clamping: left / 1_000_000 + 1))
            if ready > 0 { return }
            guard ready == 0 || errno == EINTR else { throw systemError("poll", errno) }
        }
    }
}
