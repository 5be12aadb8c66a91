import Glibc
import NotifydProtocol

/// Messages for people, one line each on standard error.
package enum Diagnostics {
    package static func write(_ text: String) {
        _ = writeAll(line(text), to: STDERR_FILENO)
    }

    /// What the message quotes of other processes stays on one line, and no terminal obeys it.
    static func line(_ text: String) -> String {
        "notifyd: " + text.unicodeScalars.map { $0.isPrintable ? String($0) : " " }.joined() + "\n"
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
    func load(isFirst: Bool) throws(ConfigurationFileError) -> NotifyConfiguration? {
        do throws(ConfigurationFileError) {
            let (configuration, errors) = ConfigurationParser.parse(try ConfigurationFile.read(path))
            for error in errors { Diagnostics.write("\(path), \(error)") }
            return configuration
        } catch {
            if error.reason == .missing, asked == nil { return NotifyConfiguration() }
            if isFirst, asked != nil { throw error }
            Diagnostics.write("\(error)")
            return nil
        }
    }
}
