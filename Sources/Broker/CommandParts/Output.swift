public import ArgumentParser
import Basics
import DeviceConfiguration
public import FoundationEssentials
import Glibc
@_spi(Extensions) import SharedDevice

/// Writes a line to standard output without a buffer, so that a reader receives it at once.
public func emit(_ line: String) throws(CommandFailure) {
    let code = writeAll("\(line)\n", to: STDOUT_FILENO)
    guard code == 0 else {
        throw CommandFailure(EX_IOERR, "could not write the output: \(String(cString: strerror(code)))")
    }
}

public enum Terminal {
    public enum Colour: Int, Sendable {
        case red = 31
        case green = 32
        case yellow = 33
    }

    public static let isColoured = TerminalOutput.showsColour(STDOUT_FILENO)

    public static func bold(_ text: String) -> String { isColoured ? "\u{1B}[1m\(text)\u{1B}[0m" : text }

    public static func coloured(_ text: String, _ colour: Colour?) -> String {
        guard isColoured, let colour else { return text }
        return "\u{1B}[\(colour.rawValue)m\(text)\u{1B}[0m"
    }

    /// The number of rows that a line takes in a window, not counting this command's colour sequences.
    public static func rows(of line: String, columns: Int) -> Int {
        var isColour = false
        let width = line.unicodeScalars.reduce(0) { count, scalar in
            if scalar == "\u{1B}" { isColour = true }
            defer { if scalar == "m" { isColour = false } }
            return isColour ? count : count + 1
        }
        return max(1, (width - 1) / max(1, columns) + 1)
    }
}

/// A table whose rows may have colours.
public struct Table {
    private var text: TextTable
    private var colours: [Terminal.Colour?] = []

    public init(_ headings: String...) { text = TextTable(headings) }

    public mutating func add(_ row: [String], _ colour: Terminal.Colour? = nil) {
        text.add(row)
        colours.append(colour)
    }

    public var lines: [String] {
        let lines = text.lines
        return [Terminal.bold(lines[0])] + zip(lines.dropFirst(), colours).map { Terminal.coloured($0, $1) }
    }
}

public enum Form {
    /// For people: local time, to the second.
    public static func time(_ date: Date) -> String {
        LocalTime.device.clock(at: date).formatted(
            Date.ISO8601FormatStyle().year().month().day()
                .dateTimeSeparator(.space).time(includingFractionalSeconds: false)
        )
    }

    /// For people: seconds since the end of a session.
    public static func after(_ seconds: Double?) -> String {
        guard let seconds, (0..<1e12).contains(seconds) else { return "-" }
        let (whole, rest) = Int((seconds * 100).rounded()).quotientAndRemainder(dividingBy: 100)
        return "+\(whole).\(rest < 10 ? "0" : "")\(rest) s"
    }

    /// For programs: UTC, to the millisecond.
    public static func timestamp(_ date: Date) -> String {
        date.formatted(Date.ISO8601FormatStyle(includingFractionalSeconds: true))
    }

    public static func json(_ value: some Encodable, pretty: Bool = true) throws -> String {
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

/// An error that has the exit status of the command that it ends (`<sysexits.h>`).
public protocol HasExitStatus: Error { var exitStatus: CInt { get } }

public struct CommandFailure: HasExitStatus, CustomStringConvertible {
    public let exitStatus: CInt
    public let description: String

    public init(_ status: CInt, _ description: String) { (exitStatus, self.description) = (status, description) }
}

/// Runs a command. An error is written to standard error in one line, and becomes the exit status (`<sysexits.h>`).
public func reportingFailure(_ body: () throws -> Void) throws {
    do {
        try body()
    } catch let error as ExitCode {
        throw error
    } catch {
        warn(systemReason(error))
        throw ExitCode((error as? any HasExitStatus)?.exitStatus ?? EX_SOFTWARE)
    }
}

/// A command whose errors end it as ``reportingFailure(_:)`` describes.
public protocol ReportingCommand: ParsableCommand { func execute() throws }

extension ReportingCommand {
    public func run() throws { try reportingFailure(execute) }
}

/// Replaces a file in one step. Everyone may read it. The message of an error ends with the remedy.
public func replaceFile(_ path: String, by content: String, remedy: String? = nil) throws(CommandFailure) {
    do throws(AtomicFile.Failure) {
        try AtomicFile(path: path, readers: .everyone, isOwnDirectory: false).write(content.utf8)
    } catch {
        let end = remedy.map { "; \($0)" } ?? ""
        throw CommandFailure(EX_CANTCREAT, "cannot write \(path): \(error.reason)\(end)")
    }
}

public func warn(_ message: String) {
    let line = Array("shared-device: \(message)\n".utf8)
    // If standard error is closed, the line is lost.
    _ = write(STDERR_FILENO, line, line.count)
}

public struct MetricsOutput: ParsableArguments {
    @Option(
        name: .customLong("output"),
        help: ArgumentHelp("The file that is replaced, in one step; otherwise standard output.", valueName: "file")
    )
    public var file: String?

    public init() {}

    public func validate() throws {
        if file?.isEmpty == true { throw ValidationError("--output needs the name of a file") }
    }

    public func write(_ text: String) throws {
        guard let file else { return try emit(String(text.dropLast())) }
        try replaceFile(file, by: text)
    }
}
