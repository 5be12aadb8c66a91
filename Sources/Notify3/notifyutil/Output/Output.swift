import Glibc
import NotifydProtocol

/// The process's output, unbuffered: when `write` returns, the line is written.
enum Output: CInt {
    case standard = 1
    case error = 2

    /// Whether this process was started with SIGPIPE ignored. To be asked before the bus is connected to, which ignores it for
    /// libdbus's sake.
    static let ignoresBrokenPipes: Bool = {
        var action = sigaction()
        sigaction(SIGPIPE, nil, &action)
        return unsafeBitCast(action.__sigaction_handler.sa_handler, to: Int.self) == Int(bitPattern: 1)
    }()

    /// Sees to it that no file of this process's own gets the number of a standard stream that it was started without: what is
    /// written there would end up on the bus. Such a stream then takes no output.
    static func reserveStandardDescriptors() {
        for descriptor in 0...2 as ClosedRange<CInt> where fcntl(descriptor, F_GETFD) < 0 {
            // The lowest free number is this one.
            _ = open("/dev/null", O_RDONLY)
        }
    }

    /// Writes all of it. Ends the process where standard output does not take it: whoever reads the reports must not take a full
    /// disk for silence.
    func write(_ text: String) {
        let error = writeAll(text, to: rawValue, waits: true)
        // Without standard error there is nobody left to tell.
        if error != 0, self != .error { Self.end(error) }
    }

    /// Ends the process because nobody reads its output any more.
    static func endForBrokenPipe() -> Never { end(EPIPE) }

    /// As other tools: a reader that has gone ends the process by SIGPIPE, in silence.
    private static func end(_ error: CInt) -> Never {
        if error == EPIPE, !ignoresBrokenPipes {
            signal(SIGPIPE, SIG_DFL)
            var pipe = sigset_t()
            sigemptyset(&pipe)
            sigaddset(&pipe, SIGPIPE)
            pthread_sigmask(SIG_UNBLOCK, &pipe, nil)
            raise(SIGPIPE)
        }
        Output.error.write("notifyutil: could not write the output: \(String(cString: strerror(error)))\n")
        exit(ExitStatus.unwritable.rawValue)
    }

    /// Whether people look at it, who like colour.
    static var isColourful: Bool {
        guard isatty(Output.standard.rawValue) == 1 else { return false }
        func variable(_ name: String) -> String { getenv(name).map { String(cString: $0) } ?? "" }
        return variable("NO_COLOR").isEmpty && variable("TERM") != "dumb"
    }
}

/// Wall-clock time of an event.
struct Timestamp: Equatable {
    /// Since 1970.
    let milliseconds: Int

    /// Rounded, as Darwin's tool does.
    static var now: Timestamp {
        var time = timespec()
        clock_gettime(CLOCK_REALTIME, &time)
        return Timestamp(milliseconds: time.tv_sec * 1000 + (time.tv_nsec + 500_000) / 1_000_000)
    }

    /// `SECONDS.MILLISECONDS`
    var text: String {
        let fraction = String(milliseconds % 1000)
        return "\(milliseconds / 1000).\(String(repeating: "0", count: 3 - fraction.count))\(fraction)"
    }
}

/// Columns under headings, two blanks apart.
struct Table {
    enum Alignment {
        case left
        case right
    }

    struct Column {
        let heading: String
        let alignment: Alignment

        init(_ heading: String, _ alignment: Alignment = .left) {
            self.heading = heading
            self.alignment = alignment
        }
    }

    private let columns: [Column]
    private var rows: [[String]] = []

    init(_ columns: [Column]) { self.columns = columns }

    /// - Parameter cells: one for each column.
    mutating func add(_ cells: [String]) { rows.append(cells) }

    /// All lines, the headings first; these in bold on a colourful terminal.
    func text(isColourful: Bool) -> String {
        let headings = columns.map(\.heading)
        let widths = columns.indices.map { column in
            ([headings] + rows).map { $0[column].count }.max() ?? 0
        }
        let lines = ([headings] + rows).map { line($0, widths) }
        let first = lines.first.map { isColourful ? "\u{1B}[1m\($0)\u{1B}[0m" : $0 } ?? ""
        return ([first] + lines.dropFirst()).joined(separator: "\n") + "\n"
    }

    private func line(_ cells: [String], _ widths: [Int]) -> String {
        let padded = cells.indices.map { column in
            let blanks = String(repeating: " ", count: widths[column] - cells[column].count)
            switch columns[column].alignment {
            case .right: return blanks + cells[column]
            // Nothing is to be seen behind the last.
            case .left: return column == cells.count - 1 ? cells[column] : cells[column] + blanks
            }
        }
        return padded.joined(separator: "  ")
    }
}
