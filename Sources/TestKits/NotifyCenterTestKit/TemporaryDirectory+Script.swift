extension TemporaryDirectory {
    /// Writes a shell script that can be run at once, and returns its path.
    ///
    /// Another process writes it: what this one has open for writing is open for a moment in children that other threads start, too,
    /// and is no program as long as it is (`ETXTBSY`).
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
