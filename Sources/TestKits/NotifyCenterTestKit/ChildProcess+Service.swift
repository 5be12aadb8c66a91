extension ChildProcess {
    /// Starts a service, and waits until it writes `ready`. One that ends because the kernel has no inotify instance for it is started
    /// again: those of processes that have ended are given back with a delay.
    ///
    /// - Throws: ``Failure`` with what the process wrote, when it ends for another reason or again and again, or time runs out.
    package static func service(
        _ program: String,
        _ arguments: [String],
        ready: String = "ready"
    ) async throws -> ChildProcess {
        var attempts = 5
        while true {
            let process = try ChildProcess(program, arguments)
            do {
                try await process.line { $0 == ready }
                return process
            } catch {
                attempts -= 1
                guard attempts > 0, process.errorText.contains("fs.inotify") else { throw error }
                try await Task.sleep(for: .milliseconds(200))
            }
        }
    }
}
