import DBusTransport
import NotifydProtocol

/// The exit statuses (sysexits.h).
enum Exit {
    /// The command line is wrong (EX_USAGE).
    static let usage: CInt = 64
    /// The configuration has problems (EX_DATAERR).
    static let problems: CInt = 65
    /// The configuration cannot be read (EX_NOINPUT).
    static let noConfiguration: CInt = 66
    /// The bus cannot be reached or refuses, or another notifyd serves it (EX_UNAVAILABLE).
    static let unavailable: CInt = 69
    /// The system grants too little (EX_OSERR).
    static let system: CInt = 71
    /// The output cannot be written (EX_IOERR).
    static let output: CInt = 74

    static func status(of error: any Error) -> CInt {
        switch error {
        case is DBusError: unavailable
        case is ConfigurationFile.Failure: noConfiguration
        default: system
        }
    }
}
