import Basics
import Glibc
import NotifyCenter

/// Messages for people, one line each on standard error.
package enum Diagnostics {
    package static func write(_ text: String) {
        _ = writeAll(line(text), to: STDERR_FILENO)
    }

    /// Makes one printable line, so that quoted text of other processes cannot control a terminal.
    static func line(_ text: String) -> String {
        "notifyd: " + text.unicodeScalars.map { $0.isPrintable ? String($0) : " " }.joined() + "\n"
    }
}

/// The file of notifyd's configuration. Reports its errors on standard error.
struct ConfigurationSource: Sendable {
    /// The file that the command line names; `nil` for the machine's file.
    let asked: String?

    var path: String { asked ?? ConfigurationFile.ofMachine }

    /// Reads the file. If the machine's file is missing, the configuration is empty.
    ///
    /// - Throws: If the file cannot be used. It must not be ignored then, because it may reserve any name.
    func load() throws(ConfigurationFileError) -> NotifyConfiguration {
        do throws(ConfigurationFileError) {
            let (configuration, errors) = ConfigurationParser.parse(try ConfigurationFile.read(path))
            for error in errors { Diagnostics.write("\(path), \(error)") }
            return configuration
        } catch {
            guard error.reason == .missing, asked == nil else { throw error }
            return NotifyConfiguration()
        }
    }
}
