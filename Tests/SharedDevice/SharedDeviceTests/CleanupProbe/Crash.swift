import Glibc

/// Ends this process without a chance to clean up where `point` is the one that is to be deadly.
func pass(_ point: String, deadlyPoint: String) {
    if point == deadlyPoint { kill(getpid(), SIGKILL) }
}

/// Writes a line to standard output past stdio: a line in its buffer would die with the process.
func say(_ line: String) { append(line, to: STDOUT_FILENO) }

/// Appends a line to the file.
func log(_ line: String, _ path: String) {
    let file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
    append(line, to: file)
    close(file)
}

private func append(_ line: String, to descriptor: CInt) {
    let bytes = Array((line + "\n").utf8)
    guard write(descriptor, bytes, bytes.count) == bytes.count else { exit(74) }
}
