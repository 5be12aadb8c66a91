import DBusTransport
import NotifyCenter
import NotifydProtocol

/// What notifyd is asked beyond notify(3).
enum Notifyd {
    /// Who is registered.
    static func list() throws(DBusError) -> (names: [NameListing], processes: [ProcessListing]) {
        let answer = try call(.list)
        guard answer.count == 2, case .array(let names, _) = answer[0], case .array(let processes, _) = answer[1] else {
            throw malformed("List")
        }
        do {
            return (try names.map(NameListing.init), try processes.map(ProcessListing.init))
        } catch {
            throw malformed("List")
        }
    }

    /// Its status, for people.
    static func status() throws(DBusError) -> String {
        guard let text = try call(.status).first?.stringValue else { throw malformed("Status") }
        return text
    }

    private static func call(_ method: NotifydProtocol.Method) throws(DBusError) -> [DBusValue] {
        let connection = try BusConnections.connection(to: .fromEnvironment)
        do throws(DBusError) {
            return try connection.callAndWait(try NotifydProtocol.call(method))
        } catch  where error.isOfMissingService {
            throw DBusError(
                error.code,
                name: error.name,
                message: error.message,
                attempted: "ask notifyd",
                remedy: "start notifyd, or install the file by which the bus starts it (notifyd(8))"
            )
        }
    }

    private static func malformed(_ method: String) -> DBusError {
        DBusError(
            .malformed,
            message: "its answer to \(method) has another form",
            attempted: "ask notifyd",
            remedy: "run the notifyutil and the notifyd of one version"
        )
    }
}
