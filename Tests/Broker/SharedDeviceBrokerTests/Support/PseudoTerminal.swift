import Foundation
import Glibc

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
