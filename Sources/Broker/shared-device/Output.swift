import ArgumentParser
import CommandParts
import DeviceConfiguration
import DeviceStorage
import DeviceView
import EmbeddedIdentity
import FoundationEssentials
import Glibc
import SharedDevice
import SharedDeviceBroker
import SharedDeviceTestKit

/// Writes a line to standard output without a buffer, so that a reader receives it at once.
func emit(_ line: String) throws(CommandFailure) {
    let bytes = Array("\(line)\n".utf8)
    var written = 0
    while written < bytes.count {
        let count = bytes[written...].withUnsafeBytes { write(STDOUT_FILENO, $0.baseAddress, $0.count) }
        if count >= 0 {
            written += count
        } else if errno != EINTR {
            throw CommandFailure(
                status: EX_IOERR,
                description: "could not write the output: \(String(cString: strerror(errno)))"
            )
        }
    }
}

enum Terminal {
    enum Colour: Int {
        case red = 31
        case green = 32
        case yellow = 33
    }

    static let isColoured = TerminalOutput.showsColour(STDOUT_FILENO)

    static func bold(_ text: String) -> String { isColoured ? "\u{1B}[1m\(text)\u{1B}[0m" : text }

    static func coloured(_ text: String, _ colour: Colour?) -> String {
        guard isColoured, let colour else { return text }
        return "\u{1B}[\(colour.rawValue)m\(text)\u{1B}[0m"
    }

    /// The number of rows that a line takes in a window, not counting this command's colour sequences.
    static func rows(of line: String, columns: Int) -> Int {
        var isColour = false
        let width = line.unicodeScalars.reduce(0) { count, scalar in
            if scalar == "\u{1B}" { isColour = true }
            defer { if scalar == "m" { isColour = false } }
            return isColour ? count : count + 1
        }
        return max(1, (width - 1) / max(1, columns) + 1)
    }

    static func printable(_ text: String) -> String { ScreenLine.printable(text) }
}

struct Table {
    var head: [String]
    var rows: [[String]] = []
    var colours: [Terminal.Colour?] = []

    init(_ head: String...) { self.head = head }

    mutating func add(_ row: [String], _ colour: Terminal.Colour? = nil) {
        rows.append(row.map(Terminal.printable))
        colours.append(colour)
    }

    var lines: [String] {
        let widths = head.indices.map { column in ([head] + rows).map { $0[column].count }.max() ?? 0 }
        let line: ([String]) -> String = { row in
            let cells = zip(row, widths).map { $0 + String(repeating: " ", count: $1 - $0.count) }
            let text = cells.joined(separator: "  ")
            return String(text[..<(text.lastIndex { $0 != " " }.map(text.index(after:)) ?? text.startIndex)])
        }
        return [Terminal.bold(line(head))] + zip(rows, colours).map { Terminal.coloured(line($0), $1) }
    }
}

enum Form {
    /// For people: local time, to the second.
    static func time(_ date: Date) -> String {
        LocalTime.device.clock(at: date).formatted(
            Date.ISO8601FormatStyle().year().month().day()
                .dateTimeSeparator(.space).time(includingFractionalSeconds: false)
        )
    }

    /// For people: seconds since the end of a session.
    static func after(_ seconds: Double?) -> String {
        guard let seconds, (0..<1e12).contains(seconds) else { return "-" }
        let (whole, rest) = Int((seconds * 100).rounded()).quotientAndRemainder(dividingBy: 100)
        return "+\(whole).\(rest < 10 ? "0" : "")\(rest) s"
    }

    /// For programs: UTC, to the millisecond.
    static func timestamp(_ date: Date) -> String {
        date.formatted(Date.ISO8601FormatStyle(includingFractionalSeconds: true))
    }

    static func json(_ value: some Encodable, pretty: Bool = true) throws -> String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        if pretty { encoder.outputFormatting.insert(.prettyPrinted) }
        encoder.dateEncodingStrategy = .custom { date, encoder in
            var container = encoder.singleValueContainer()
            try container.encode(timestamp(date))
        }
        return String(decoding: try encoder.encode(value), as: UTF8.self)
    }
}

struct CommandFailure: Error, CustomStringConvertible {
    let status: CInt
    let description: String
}

/// Runs a command. An error is written to standard error in one line, and its kind becomes the exit status
/// (`<sysexits.h>`).
func reportingFailure(_ body: () throws -> Void) throws {
    do {
        try body()
    } catch let error as ExitCode {
        throw error
    } catch {
        warn(systemReason(error))
        throw ExitCode(exitStatus(for: error))
    }
}

func writeAll(_ text: String, to descriptor: CInt) throws(POSIXError) {
    var rest = Array(text.utf8)[...]
    while !rest.isEmpty {
        let count = rest.withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) }
        guard count >= 0 || errno == EINTR else { throw POSIXError(POSIXErrorCode(rawValue: errno) ?? .EIO) }
        rest = rest.dropFirst(max(0, count))
    }
}

/// Replaces a file that only its owner may write and everyone may read. The content is written to a draft and then
/// renamed, so that no reader finds an incomplete file.
func replaceFile(_ path: String, by content: String) throws(POSIXError) {
    let failure = { POSIXError(POSIXErrorCode(rawValue: errno) ?? .EIO) }
    // O_EXCL and O_NOFOLLOW refuse a link at this name: the directory may belong to another user.
    let draft = "\(path).\(getpid())"
    let descriptor = open(draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o600)
    guard descriptor >= 0 else { throw failure() }
    defer {
        unlink(draft)
        close(descriptor)
    }
    try writeAll(content, to: descriptor)
    guard fsync(descriptor) == 0, fchmod(descriptor, 0o644) == 0, rename(draft, path) == 0 else { throw failure() }
}

func warn(_ message: String) {
    let line = Array("shared-device: \(message)\n".utf8)
    // If standard error is closed, the line is lost.
    _ = write(STDERR_FILENO, line, line.count)
}

func exitStatus(for error: any Error) -> CInt {
    switch error {
    case let error as CommandFailure: error.status
    case let error as UserDirectoryError: error.storeError.map(exitStatus(for:)) ?? exitStatus(for: error.code)
    case let error as StoreError: exitStatus(for: error)
    case let error as ManagedConfigurationError: error.code == .unreadable ? EX_NOINPUT : EX_DATAERR
    case let error as SharedDeviceError: error.code.exitStatus
    case is TerminalFailure: EX_IOERR
    default: EX_SOFTWARE
    }
}

private func exitStatus(for code: UserDirectoryError.Code) -> CInt {
    switch code {
    case .unknownUser: EX_NOUSER
    case .usernameTaken: EX_CANTCREAT
    case .signedIn: EX_TEMPFAIL
    case .invalidUsername, .invalidDisplayName, .invalidTenant, .weakPassword, .unusablePassword: EX_DATAERR
    default: EX_SOFTWARE
    }
}

private func exitStatus(for error: StoreError) -> CInt {
    switch error.code {
    case .notFound: EX_NOINPUT
    case .noPermission, .insecure: EX_NOPERM
    case .cannotCreate: EX_CANTCREAT
    case .damaged, .foreignFile, .newerVersion: EX_DATAERR
    case .busy: EX_TEMPFAIL
    default: EX_IOERR
    }
}
