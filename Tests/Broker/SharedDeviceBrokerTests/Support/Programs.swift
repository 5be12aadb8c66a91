import Foundation
import Glibc

/// A program of this package, run as a process.
enum Program: String {
    case sharedDevice = "shared-device"
    case commitLoop = "commit-loop"

    /// Beside the tests' own executable.
    var path: String {
        let tests = (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")) ?? ""
        return (tests as NSString).deletingLastPathComponent + "/" + rawValue
    }

    struct Outcome {
        let status: Int32
        let output: String
        let errors: String
    }

    /// A program that ends before it has read its input must not take the tests with it: writing fails then (EPIPE).
    private static let ignoreBrokenPipes: Void = { signal(SIGPIPE, SIG_IGN) }()

    /// Runs the program to its end, in a shell that has done `preparation` first.
    func run(
        _ arguments: [String],
        input: String = "",
        environment: [String: String] = [:],
        preparation: String = ""
    ) async throws -> Outcome {
        Self.ignoreBrokenPipes
        let path = path
        return try await onThread {
            let process = Process()
            process.executableURL = URL(fileURLWithPath: "/bin/sh")
            process.arguments = ["-c", "\(preparation)\nexec \"$0\" \"$@\"", path] + arguments
            process.environment = ["PATH": "/usr/bin:/bin", "HOME": "/nonexistent"].merging(environment) { $1 }
            let (input, output, errors) = (Data(input.utf8), Pipe(), Pipe())
            let inputPipe = Pipe()
            process.standardInput = inputPipe
            process.standardOutput = output
            process.standardError = errors
            try process.run()
            let watchdog = Watchdog(process)
            defer { watchdog.cancel() }
            // A program that reads none of it is no error here.
            try? inputPipe.fileHandleForWriting.write(contentsOf: input)
            try? inputPipe.fileHandleForWriting.close()
            // What these programs write fits into the pipes, so that one can be read after the other.
            let text = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
            let errorText = String(decoding: errors.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
            process.waitUntilExit()
            return Outcome(status: process.terminationStatus, output: text, errors: errorText)
        }
    }
}

/// Kills a program that hangs, so that the test fails and does not hang with it.
struct Watchdog {
    private let item: DispatchWorkItem

    init(_ process: Process) {
        let identifier = process.processIdentifier
        item = DispatchWorkItem { kill(identifier, SIGKILL) }
        DispatchQueue.global().asyncAfter(deadline: .now() + 300, execute: item)
    }

    func cancel() { item.cancel() }
}

/// Runs what blocks on a thread of its own, and not of the pool that the other tests run on.
func onThread<Value: Sendable>(_ body: @escaping @Sendable () throws -> Value) async throws -> Value {
    try await withCheckedThrowingContinuation { continuation in
        Thread.detachNewThread { continuation.resume(with: Result { try body() }) }
    }
}
