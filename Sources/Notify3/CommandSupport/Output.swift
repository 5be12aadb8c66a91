package import Basics
import Glibc
import NotifyCenter

/// The process's output, unbuffered: when `write` returns, the line is written.
package enum Output: CInt {
    case standard = 1
    case error = 2

    /// Whether this process was started with SIGPIPE ignored.
    private static let ignoresBrokenPipes: Bool = {
        var action = sigaction()
        sigaction(SIGPIPE, nil, &action)
        return unsafeBitCast(action.__sigaction_handler.sa_handler, to: Int.self) == Int(bitPattern: 1)
    }()

    /// Records the state in which the process was started. Call it first in `main`: a connection to the bus ignores
    /// SIGPIPE, and the next file that is opened gets the number of a missing standard stream.
    package static func prepare() {
        // Otherwise, text for a missing stream could end up on the bus. /dev/null is opened for reading, so it takes no
        // output.
        for descriptor in 0...2 as ClosedRange<CInt> where fcntl(descriptor, F_GETFD) < 0 {
            // `open` takes the lowest free number, which is this one.
            _ = open("/dev/null", O_RDONLY)
        }
        _ = ignoresBrokenPipes
    }

    /// Writes all of the text. Ends the process if standard output does not take it: a reader of the reports must not
    /// take a full disk for silence.
    package func write(_ text: String) {
        let error = writeAll(text, to: rawValue, waits: true)
        // Without standard error, the error cannot be reported.
        if error != 0, self != .error { Self.end(error) }
    }

    /// Writes a line to standard error, after the name of the program.
    package static func complain(_ message: String) {
        let program = CommandLine.arguments.first?.split(separator: "/").last ?? ""
        error.write("\(program): \(message)\n")
    }

    /// Ends the process because the reader of its output is gone.
    package static func endForBrokenPipe() -> Never { end(EPIPE) }

    /// Ends the process as other tools do: by SIGPIPE and in silence if the reader is gone.
    private static func end(_ error: CInt) -> Never {
        if error == EPIPE, !ignoresBrokenPipes {
            signal(SIGPIPE, SIG_DFL)
            var pipe = sigset_t()
            sigemptyset(&pipe)
            sigaddset(&pipe, SIGPIPE)
            pthread_sigmask(SIG_UNBLOCK, &pipe, nil)
            raise(SIGPIPE)
        }
        complain("could not write the output: \(String(cString: strerror(error)))")
        exit(ExitStatus.unwritable.rawValue)
    }
}

extension CommandLine {
    /// Returns the arguments after the name of the program, unchanged. `CommandLine.arguments` replaces bytes that are
    /// not UTF-8 by U+FFFD, so that the program would post another name than the caller gave.
    package static func texts() throws(Problem) -> [String] {
        var arguments: [String] = []
        for index in 1..<max(1, Int(CommandLine.argc)) {
            guard let pointer = CommandLine.unsafeArgv[index] else { break }
            guard let argument = String(validatingCString: pointer) else {
                throw Problem("argument \(index) is not UTF-8 text: \(String(cString: pointer))")
            }
            arguments.append(argument)
        }
        return arguments
    }
}

/// Wall-clock time of an event.
package struct Timestamp: Equatable, Sendable {
    /// Since 1970.
    package let milliseconds: Int

    package init(milliseconds: Int) { self.milliseconds = milliseconds }

    /// The current time, rounded as Darwin's tool does.
    package static var now: Timestamp {
        var time = timespec()
        clock_gettime(CLOCK_REALTIME, &time)
        return Timestamp(milliseconds: time.tv_sec * 1000 + (time.tv_nsec + 500_000) / 1_000_000)
    }

    /// `SECONDS.MILLISECONDS`
    package var text: String {
        let fraction = String(milliseconds % 1000)
        return "\(milliseconds / 1000).\(String(repeating: "0", count: 3 - fraction.count))\(fraction)"
    }
}

extension Unicode.Scalar {
    /// The escape in JSON: `\u` with four hexadecimal digits, for each UTF-16 code unit.
    package var escape: String {
        utf16.map { unit in
            let digits = String(unit, radix: 16)
            return "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
        }.joined()
    }
}

extension String {
    /// The text for people: control characters and the backslash are escaped as in JSON, because names come from other
    /// processes.
    package var visible: String {
        unicodeScalars.reduce(into: "") { result, scalar in
            if scalar == "\\" {
                result += "\\\\"
            } else if !scalar.isPrintable {
                result += scalar.escape
            } else {
                result.unicodeScalars.append(scalar)
            }
        }
    }
}
