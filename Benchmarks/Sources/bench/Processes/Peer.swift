/// A contender at work in one role.
final class Peer {
    let contender: Contender
    private let process: ChildProcess

    var processIdentifier: Int32 { process.identifier }

    /// Starts it. Throws `.systemCall`.
    init(_ contender: Contender, _ role: [String], on bus: PrivateBus) throws(BenchmarkError) {
        self.contender = contender
        process = try ChildProcess(contender.command(role, address: bus.address))
    }

    /// Returns when the peer has connected and registered. Throws `.peer`, `.malformedResult`, `.interrupted`.
    func waitUntilReady() throws(BenchmarkError) {
        let line = try process.line(before: monotonicNanoseconds() + patience)
        guard line == "ready" else {
            throw BenchmarkError(.malformedResult, "\(process.name) printed \"\(line)\" before it was ready")
        }
    }

    /// Waits for the peer's result. Throws as `waitUntilReady` does.
    func result() throws(BenchmarkError) -> ResultLine {
        try ResultLine(try process.line(before: monotonicNanoseconds() + patience))
    }

    /// Ends it. It is also ended when this object goes.
    func stop() {
        process.stop()
    }
}
