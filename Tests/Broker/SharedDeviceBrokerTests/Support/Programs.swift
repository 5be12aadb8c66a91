import Foundation
import Glibc

import func NotifyCenterTestKit.onThread

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

/// Makes what takes one of the user's inotify instances, as soon as one is free. The kernel gives back those of processes that have ended
/// with a delay, and each bus of another test takes one.
func onceInotifyIsFree<Value>(_ make: () async throws -> Value) async throws -> Value {
    let deadline = ContinuousClock.now + .seconds(120)
    while true {
        do {
            return try await make()
        } catch  where "\(error)".contains("fs.inotify") && ContinuousClock.now < deadline {
            try await Task.sleep(for: .milliseconds(50))
        }
    }
}

/// A terminal that a test types at.
final class PseudoTerminal: Sendable {
    private let controller: FileHandle
    /// What a program is given as its standard input or error.
    let terminal: FileHandle

    init() throws {
        // posix_openpt and its kin are not in Swift's Glibc; these are Linux's own requests behind them.
        let (unlock, getNumber): (UInt, UInt) = (0x4004_5431, 0x8004_5430)
        var (isLocked, number): (CInt, CInt) = (0, 0)
        let descriptor = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC)
        guard descriptor >= 0, ioctl(descriptor, unlock, &isLocked) == 0, ioctl(descriptor, getNumber, &number) == 0
        else { throw POSIXError(POSIXErrorCode(rawValue: errno) ?? .EIO) }
        controller = FileHandle(fileDescriptor: descriptor, closeOnDealloc: true)
        let other = open("/dev/pts/\(number)", O_RDWR | O_NOCTTY | O_CLOEXEC)
        guard other >= 0 else { throw POSIXError(POSIXErrorCode(rawValue: errno) ?? .EIO) }
        terminal = FileHandle(fileDescriptor: other, closeOnDealloc: true)
    }

    /// Whether what is typed shows.
    var echoes: Bool {
        var attributes = termios()
        return tcgetattr(terminal.fileDescriptor, &attributes) == 0 && attributes.c_lflag & tcflag_t(ECHO) != 0
    }

    func type(_ text: String) throws { try controller.write(contentsOf: Data(text.utf8)) }

    /// Reads the screen until it shows `text`; returns what it has shown since the last call. Blocks.
    func read(until text: String) throws -> String {
        var shown = Data()
        var ready = pollfd(fd: controller.fileDescriptor, events: Int16(POLLIN), revents: 0)
        while shown.range(of: Data(text.utf8)) == nil {
            // A program that ended closes no terminal that the test holds, too: the end would not be seen.
            guard poll(&ready, 1, 300_000) > 0 else { throw POSIXError(.ETIMEDOUT) }
            guard let more = try controller.read(upToCount: 1), !more.isEmpty else { break }
            shown.append(more)
        }
        return String(decoding: shown, as: UTF8.self)
    }

    /// What the screen shows beyond what was read. Does not block.
    func readRest() -> String {
        var rest: [UInt8] = []
        var ready = pollfd(fd: controller.fileDescriptor, events: Int16(POLLIN), revents: 0)
        while poll(&ready, 1, 0) > 0, ready.revents & Int16(POLLIN) != 0 {
            var byte: UInt8 = 0
            guard Glibc.read(controller.fileDescriptor, &byte, 1) == 1 else { break }
            rest.append(byte)
        }
        return String(decoding: rest, as: UTF8.self)
    }
}
