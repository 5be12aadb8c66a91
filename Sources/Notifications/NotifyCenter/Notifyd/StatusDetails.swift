import Basics
package import DBus

/// A readable list of all names with their processes, collected from the pages of notifyd's list. Pure.
package struct StatusDetails {
    // Keyed by bytes: names are equal only if their bytes are.
    private var names: [[UInt8]: NameListing] = [:]
    private var clients: [[UInt8]: String] = [:]

    package init() {}

    package mutating func add(_ page: ListPage) {
        for name in page.names { names[Array(name.name.utf8)] = name }
        for process in page.processes {
            for report in process.report.names {
                clients[Array(report.name.utf8), default: ""] += Self.client(process, report)
            }
        }
    }

    package var text: String {
        names.sorted { $0.value.name < $1.value.name }.map { key, name in
            "\nname \(name.name.quotedOnOneLine): state \(name.state)\(name.isPermanent ? ", permanent" : "")\n"
                + (clients[key] ?? "")
        }
        .joined()
    }

    private static func client(_ process: ProcessListing, _ report: NameReport) -> String {
        let suspended = process.report.suspensions > 0 ? ", suspended \(process.report.suspensions)" : ""
        var text = "  process \(process.process), user \(process.user), \(process.connection)\(suspended)\n"
        for registration in report.registrations {
            text += "    token \(registration.token): \(registration.kind.rawValue)"
            text += ", suspended \(registration.suspensions), notified \(registration.deliveries)\n"
        }
        for monitor in report.monitors {
            text += "    token \(monitor.token) monitors \(monitor.path.quotedOnOneLine)"
            text += ", flags 0x\(String(monitor.flags, radix: 16))\n"
        }
        return text
    }
}

extension NotifydProtocol {
    /// Reads all pages of notifyd's list.
    ///
    /// - Parameter call: calls notifyd, and waits for the response.
    package static func list(
        _ call: (consuming DBusMessage) throws(DBusError) -> [DBusValue],
        options: DBusMessage.CallOptions = [],
        _ take: (ListPage) -> Void
    ) throws(DBusError) {
        var cursor: UInt64 = 0
        repeat {
            let answer = try call(try Self.call(.list, [.uint64(cursor)], options: options))
            do throws(FormError) {
                let page = try ListPage(answer)
                take(page)
                // Cursors must increase. Otherwise a malicious notifyd could keep its caller in this loop forever.
                guard page.cursor == 0 || page.cursor > cursor else { throw FormError() }
                cursor = page.cursor
            } catch {
                throw DBusError(
                    .malformed,
                    message: "the response to List has an unknown form",
                    attempted: "ask notifyd",
                    remedy: "use programs and notifyd of the same version"
                )
            }
        } while cursor != 0
    }

    /// Returns notifyd's status and all names with their processes, as text.
    package static func status(
        _ call: (consuming DBusMessage) throws(DBusError) -> [DBusValue],
        options: DBusMessage.CallOptions = []
    ) throws(DBusError) -> String {
        let summary = try call(try Self.call(.status, options: options)).first?.stringValue ?? ""
        var details = StatusDetails()
        try list(call, options: options) { details.add($0) }
        return summary + details.text
    }
}
