import Foundation
import Glibc
@_spi(Extensions) import NotifyCenterTestKit

enum Program: String {
    case sharedDevice = "shared-device"
    case simulate

    var path: String {
        let tests = (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")) ?? ""
        return (tests as NSString).deletingLastPathComponent + "/" + rawValue
    }

    struct Outcome {
        let status: Int32
        let output: String
        let errors: String
    }

    /// Ignores SIGPIPE, so that a program that exits before it has read its input does not end the tests. The write
    /// fails with EPIPE instead.
    private static let ignoreBrokenPipes: Void = { signal(SIGPIPE, SIG_IGN) }()

    /// Runs the program until it exits, in a shell that has run `preparation` first.
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
            // The program may exit without reading its input.
            try? inputPipe.fileHandleForWriting.write(contentsOf: input)
            try? inputPipe.fileHandleForWriting.close()
            // The output of these programs fits into the pipe buffers, so the pipes can be read one by one.
            let text = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
            let errorText = String(decoding: errors.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
            process.waitUntilExit()
            return Outcome(status: process.terminationStatus, output: text, errors: errorText)
        }
    }
}

/// Kills a program that hangs, so that the test fails instead of hanging.
struct Watchdog {
    private let item: DispatchWorkItem

    init(_ process: Process) {
        let identifier = process.processIdentifier
        item = DispatchWorkItem { kill(identifier, SIGKILL) }
        DispatchQueue.global().asyncAfter(deadline: .now() + 300, execute: item)
    }

    func cancel() { item.cancel() }
}

/// Creates an object that needs one of the user's inotify instances, and retries until one is free. The kernel releases
/// those of ended processes with a delay, and each bus of another test uses one.
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

final class PseudoTerminal: Sendable {
    private let controller: FileHandle
    /// The standard input or error of the program.
    let terminal: FileHandle

    init() throws {
        // Swift's Glibc module lacks posix_openpt and related functions. These are the Linux ioctl requests behind
        // them.
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

    var echoes: Bool {
        var attributes = termios()
        return tcgetattr(terminal.fileDescriptor, &attributes) == 0 && attributes.c_lflag & tcflag_t(ECHO) != 0
    }

    func type(_ text: String) throws { try controller.write(contentsOf: Data(text.utf8)) }

    /// Reads the screen until it contains `text`. Returns the output since the last call. Blocks.
    func read(until text: String) throws -> String {
        var shown = Data()
        var ready = pollfd(fd: controller.fileDescriptor, events: Int16(POLLIN), revents: 0)
        while shown.range(of: Data(text.utf8)) == nil {
            // The test also holds the terminal open, so the exit of the program causes no end of file.
            guard poll(&ready, 1, 300_000) > 0 else { throw POSIXError(.ETIMEDOUT) }
            guard let more = try controller.read(upToCount: 1), !more.isEmpty else { break }
            shown.append(more)
        }
        return String(decoding: shown, as: UTF8.self)
    }

    /// The remaining output on the screen. Does not block.
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
