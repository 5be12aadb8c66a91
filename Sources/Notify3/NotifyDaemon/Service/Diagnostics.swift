import Glibc
import NotifydProtocol

/// What people are to know, one line each on standard error.
package enum Diagnostics {
    package static func write(_ text: String) {
        write(line(text), to: 2)
    }

    /// Nothing that a message brings may make two lines of one, or be obeyed by a terminal.
    static func line(_ text: String) -> String {
        "notifyd: " + text.unicodeScalars.map { $0.isPrintable ? String($0) : " " }.joined() + "\n"
    }

    /// Writes all of a text; whether it could.
    @discardableResult
    package static func write(_ text: String, to descriptor: CInt) -> Bool {
        var text = text
        return text.withUTF8 { bytes in
            var rest = UnsafeRawBufferPointer(bytes)[...]
            while !rest.isEmpty {
                let written = Glibc.write(descriptor, UnsafeRawBufferPointer(rebasing: rest).baseAddress, rest.count)
                guard written > 0 else {
                    if errno == EINTR { continue }
                    return false
                }
                rest = rest.dropFirst(written)
            }
            return true
        }
    }
}

extension Unicode.Scalar {
    /// Whether it neither ends a line, nor moves the cursor, starts a terminal's command or turns the direction of writing.
    var isPrintable: Bool {
        switch properties.generalCategory {
        case .control, .format, .lineSeparator, .paragraphSeparator: false
        default: true
        }
    }
}

/// Where notifyd's configuration comes from. Says on standard error what is wrong with it.
struct ConfigurationSource: Sendable {
    /// The file that the command line names.
    let asked: String?

    var path: String { asked ?? ConfigurationFile.ofMachine }

    /// Reads the file. Without the machine's own the configuration is empty; where it cannot be used there is none.
    ///
    /// - Parameter isFirst: whether notifyd has none so far.
    /// - Throws: where the command line's own cannot be used.
    func load(isFirst: Bool) throws(ConfigurationFile.Failure) -> NotifyConfiguration? {
        do throws(ConfigurationFile.Failure) {
            let (configuration, problems) = ConfigurationParser.parse(try ConfigurationFile.read(path))
            for problem in problems { Diagnostics.write("\(path), \(problem)") }
            return configuration
        } catch {
            if error.reason == .missing, asked == nil { return NotifyConfiguration() }
            if isFirst, asked != nil { throw error }
            Diagnostics.write("\(error)")
            return nil
        }
    }
}
