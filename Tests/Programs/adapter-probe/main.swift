import AppAdapters
import Basics
import DBus
import DeviceConfiguration
import Foundation
import Glibc
import SharedDevice
import Synchronization

// The program that adapter tests run. The first argument selects one of the roles below.

/// Writes a line unbuffered, because the process may be killed right after it.
@Sendable func say(_ line: String) { _ = writeAll("\(line)\n", to: STDOUT_FILENO) }

let arguments = Array(CommandLine.arguments.dropFirst())
switch arguments[0] {
case "adapter": try await adapter(bus: arguments[1], directory: arguments[2], deadlyPoint: arguments[3])
case "app": try await app(bus: arguments[1], directory: arguments[2], identifier: arguments[3], kind: arguments[4])
case "writer": keepWriting(to: arguments[1])
case "threaded-writer": keepWritingWithoutFirstThread(to: arguments[1])
case "enforce":
    try await enforce(
        bus: arguments[1],
        apps: arguments[2],
        point: arguments[3],
        signal: Int32(arguments[4]) ?? SIGKILL
    )
// With the arguments that the enforcement passes: remove --user N -- PATHS
case "remove":
    try UserRights.take(SystemUser(number: UInt32(arguments[2]) ?? .max))
    print(try Deletion(paths: Array(arguments.dropFirst(4)), user: geteuid()).runHere().line)
case "deletion": await delete(arguments[1])
default: exit(EX_USAGE)
}

/// An adapter that is killed at a checkpoint. Its command writes into the user's data and never exits by itself.
func adapter(bus: String, directory: String, deadlyPoint: String) async throws {
    let data = "\(directory)/data"
    var settings = OwnedCommand.Settings(
        mark: "\(directory)/state",
        command: ["/bin/sh", "-c", "echo started; echo \"$$\" >\(data)/process; while :; do sleep 1; done"]
    )
    settings.directories = [data]
    let adapter = Adapter(
        program: OwnedCommand(settings),
        start: .always,
        paths: [data],
        user: geteuid(),
        log: { say("log \($0)") },
        shown: { say("shown \($0)") },
        checkpoint: { if "\($0)" == deadlyPoint { kill(getpid(), SIGKILL) } }
    )
    let application = SharedDeviceApplication(
        identifier: "org.example.adapter",
        bus: .address(bus),
        stateDirectory: "\(directory)/state"
    )
    try await adapter.follow(application)
}

/// The enforcement, which sends itself a signal when it first reaches a checkpoint.
func enforce(bus: String, apps: String, point: String, signal: Int32) async throws {
    let isPast = Locked(false)
    let enforcer = try Enforcer(
        bus: .address(bus),
        mark: { "/nonexistent/\($0)" },
        log: { say("log \($0)") },
        checkpoint: { checkpoint in
            let isFirst =
                "\(checkpoint)" == point
                && isPast.withLock { isPast in
                    defer { isPast = true }
                    return !isPast
                }
            if isFirst { kill(getpid(), signal) }
        }
    )
    let updates = try AppManifestDirectory(path: apps).updates()
    say("ready")
    await enforcer.run(updates)
    _exit(EX_TEMPFAIL)
}

/// Deletes in a child with a limit of one second. A line on standard input starts another attempt.
func delete(_ path: String) async {
    repeat {
        do {
            var deletion = Deletion(paths: [path], user: 65534)
            (deletion.patience, deletion.killed) = (.seconds(1), .milliseconds(100))
            say("deleted \(try await deletion.run().line)")
        } catch {
            say("failed \(error)")
        }
    } while readLine() != nil
}

/// An app that keeps a secret of the signed-in user in `DIRECTORY/data`. A line on standard input signs in that user.
/// Its cleanup never ends, unless its kind is “tidy”.
func app(bus: String, directory: String, identifier: String, kind: String) async throws {
    let application = SharedDeviceApplication(
        identifier: identifier,
        bus: .address(bus),
        stateDirectory: "\(directory)/state"
    )
    let data = "\(directory)/data"
    let cleanup = CleanupCoordinator()
    try cleanup.register("data") { _ in
        if kind != "tidy" { try await Task.sleep(for: .seconds(100_000)) }
        try? FileManager.default.removeItem(atPath: "\(data)/secret")
        return "removed"
    }
    Thread.detachNewThread {
        while let name = readLine() {
            Task {
                var parameters = InteractiveTokenParameters(scopes: [], loginHint: name) { _ in
                    Credentials(username: name, password: "correct horse \(name)")
                }
                // Tests that expect a refusal wait for this time. The others try again.
                parameters.patience = .seconds(2)
                do {
                    _ = try await application.acquireToken(with: parameters)
                    say("signed in \(name)")
                } catch {
                    say("refused \(name) \(error)")
                }
            }
        }
    }
    say("ready")
    await application.follow(cleanup) { state in
        if case .open(let account) = state {
            try "secret of \(account.username)".write(toFile: "\(data)/secret", atomically: false, encoding: .utf8)
            if kind == "forks" { try startWriter(data) }
        }
        say("shown \(state)")
    }
}

/// Starts a process that leaves the app's group, session and parents.
func startWriter(_ data: String) throws {
    let own = try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")
    let process = Process()
    process.executableURL = URL(fileURLWithPath: "/bin/sh")
    process.arguments = ["-c", "setsid '\(own)' writer '\(data)' </dev/null >/dev/null 2>&1 &"]
    try process.run()
}

/// Writes without end, and ignores requests to exit.
func keepWriting(to data: String) {
    signal(SIGTERM, SIG_IGN)
    signal(SIGHUP, SIG_IGN)
    while true {
        try? "secret of somebody".write(toFile: "\(data)/forked", atomically: false, encoding: .utf8)
        usleep(10_000)
    }
}

/// Like `keepWriting`, but on a second thread that outlives the first. The kernel then shows nothing about the process
/// at its first thread.
func keepWritingWithoutFirstThread(to data: String) {
    Thread.detachNewThread { keepWriting(to: data) }
    pthread_exit(nil)
}
