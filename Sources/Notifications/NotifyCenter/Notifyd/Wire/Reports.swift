import Basics
package import DBus
import Glibc

/// One registration, as its process reports it.
package struct RegistrationReport: Sendable, Hashable {
    package var token: Int32
    package var kind: RegistrationKind
    /// The number of suspensions in force.
    package var suspensions: UInt32
    /// The number of delivered notifications, without held-back ones.
    package var deliveries: UInt64

    package init(token: Int32, kind: RegistrationKind, suspensions: UInt32, deliveries: UInt64) {
        self.token = token
        self.kind = kind
        self.suspensions = suspensions
        self.deliveries = deliveries
    }
}

/// A path that a registration monitors.
package struct MonitorReport: Sendable, Hashable {
    package var token: Int32
    package var path: String
    /// The flags of `notify_private.h`; 0 for all.
    package var flags: UInt32

    package init(token: Int32, path: String, flags: UInt32) {
        (self.token, self.path, self.flags) = (token, path, flags)
    }
}

package struct NameReport: Sendable, Hashable {
    package var name: String
    /// The state that this process last set or keeps; `nil` for none.
    package var state: StateReport?
    package var monitors: [MonitorReport]
    /// Each registration, if the registrations were requested.
    package var registrations: [RegistrationReport]

    package init(
        name: String,
        state: StateReport? = nil,
        monitors: [MonitorReport] = [],
        registrations: [RegistrationReport] = []
    ) {
        self.name = name
        self.state = state
        self.monitors = monitors
        self.registrations = registrations
    }
}

/// A value with the time at which it was set.
package struct StateReport: Sendable, Hashable {
    package var value: UInt64
    /// Nanoseconds of the machine's boot clock (`CLOCK_BOOTTIME`), which all processes share.
    package var time: UInt64

    package init(value: UInt64, time: UInt64) { (self.value, self.time) = (value, time) }
}

/// The clock of states. It never goes back, and all processes of the machine share it.
package enum BootClock {
    /// Nanoseconds since the machine started.
    package static var now: UInt64 {
        var time = timespec()
        clock_gettime(CLOCK_BOOTTIME, &time)
        return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
    }
}

package struct ProcessReport: Sendable, Hashable {
    /// The number of suspensions of the whole process in force.
    package var suspensions: UInt32
    package var names: [NameReport]

    package init(suspensions: UInt32 = 0, names: [NameReport] = []) {
        (self.suspensions, self.names) = (suspensions, names)
    }
}

/// A process in notifyd's list: its report or a part of it, and its identity according to the bus.
package struct ProcessListing: Sendable, Hashable {
    /// Its unique bus name.
    package var connection: String
    package var process: UInt32
    package var user: UInt32
    package var report: ProcessReport

    package init(connection: String, process: UInt32, user: UInt32, report: ProcessReport) {
        self.connection = connection
        self.process = process
        self.user = user
        self.report = report
    }
}

package struct NameListing: Sendable, Hashable {
    package var name: String
    package var state: UInt64
    /// Whether the configuration keeps the name permanently.
    package var isPermanent: Bool

    package init(name: String, state: UInt64, isPermanent: Bool) {
        (self.name, self.state, self.isPermanent) = (name, state, isPermanent)
    }
}

/// A part of notifyd's lists. A process with many names is on several pages.
package struct ListPage: Sendable, Hashable {
    /// The names of the page's processes. The first page also has the permanent names that the caller may read.
    package var names: [NameListing] = []
    package var processes: [ProcessListing] = []
    /// The cursor of the next page; 0 after the last page.
    package var cursor: UInt64 = 0

    package init() {}
}

/// The amount of data that notifyd keeps for a process.
package struct Amount: Sendable, Hashable {
    package var names: Int
    /// The UTF-8 bytes of names and monitored paths.
    package var bytes: Int
    /// Registrations and monitored paths.
    package var registrations: Int

    package init(names: Int = 0, bytes: Int = 0, registrations: Int = 0) {
        (self.names, self.bytes, self.registrations) = (names, bytes, registrations)
    }

    package init(_ report: ProcessReport) {
        self.init(names: report.names.count)
        for name in report.names {
            bytes += name.monitors.reduce(name.name.utf8.count) { $0 + $1.path.utf8.count }
            registrations += name.registrations.count + name.monitors.count
        }
    }

    /// Whether this amount is within another one in every respect.
    package func isWithin(_ other: Amount) -> Bool {
        names <= other.names && bytes <= other.bytes && registrations <= other.registrations
    }

    package static func + (left: Amount, right: Amount) -> Amount {
        Amount(
            names: left.names + right.names,
            bytes: left.bytes + right.bytes,
            registrations: left.registrations + right.registrations
        )
    }

    package static func - (left: Amount, right: Amount) -> Amount {
        Amount(
            names: left.names - right.names,
            bytes: left.bytes - right.bytes,
            registrations: left.registrations - right.registrations
        )
    }
}

// The wire form of reports and lists: rows without variants, so that the cost of reading a body is bounded by its size.

extension NotifydProtocol {
    /// Rows of ``NameReport``: name, whether it has a state, value and time of the state, registrations, monitored
    /// paths.
    package static let nameRows = "a(sbtta(isut)a(isu))"
    /// Rows of a name and its state: value and time.
    package static let stateRows = "a(stt)"
    /// Rows of ``NameListing``: name, state, whether it is permanent.
    package static let nameListingRows = "a(stb)"
    /// Rows of ``ProcessListing``: connection, process, user, and the report.
    package static let processRows = "a(suuu\(nameRows))"
}

// MARK: - Writing

private func rows(_ values: some Sequence<DBusValue>, _ signature: String) -> DBusValue {
    .array(Array(values), of: String(signature.dropFirst()))
}

extension ProcessReport {
    /// The arguments of `Report`, after the round.
    package var values: [DBusValue] { [.uint32(suspensions), rows(names.lazy.map(\.value), NotifydProtocol.nameRows)] }
}

extension NameReport {
    fileprivate var value: DBusValue {
        .structure([
            .string(name), .boolean(state != nil), .uint64(state?.value ?? 0), .uint64(state?.time ?? 0),
            rows(registrations.lazy.map(\.value), "a(isut)"), rows(monitors.lazy.map(\.value), "a(isu)"),
        ])
    }
}

extension [NameReport] {
    /// The argument of `Keep`. Names without a state are omitted.
    package var keptStates: DBusValue {
        let states = lazy.compactMap { name in
            name.state.map { DBusValue.structure([.string(name.name), .uint64($0.value), .uint64($0.time)]) }
        }
        return rows(states, NotifydProtocol.stateRows)
    }

    /// Reads the argument of `Keep`.
    package init(keptStates arguments: inout ArgumentReader) throws(ArgumentReader.TooMuch) {
        self = try arguments.elements { row throws(ArgumentReader.TooMuch) in
            let name = try row.text()
            return NameReport(name: name, state: StateReport(value: row.unsigned(), time: row.unsigned()))
        }
    }
}

extension RegistrationReport {
    fileprivate var value: DBusValue {
        .structure([.int32(token), .string(kind.rawValue), .uint32(suspensions), .uint64(deliveries)])
    }
}

extension MonitorReport {
    fileprivate var value: DBusValue { .structure([.int32(token), .string(path), .uint32(flags)]) }
}

extension ListPage {
    /// The response to `List`.
    package var values: [DBusValue] {
        let names = names.lazy.map { name in
            DBusValue.structure([.string(name.name), .uint64(name.state), .boolean(name.isPermanent)])
        }
        let processes = processes.lazy.map { process in
            DBusValue.structure(
                [.string(process.connection), .uint32(process.process), .uint32(process.user)] + process.report.values
            )
        }
        return [
            rows(names, NotifydProtocol.nameListingRows), rows(processes, NotifydProtocol.processRows), .uint64(cursor),
        ]
    }
}

// MARK: - Reading

/// Reads the arguments of a message one after the other. The message's signature has already been checked.
package struct ArgumentReader {
    /// The message contains more than its receiver accepts.
    package struct TooMuch: Error {
        package init() {}
    }

    private var reader: DBusReader

    package init(_ reader: DBusReader) { self.reader = reader }

    /// - Parameter limit: the maximum number of UTF-8 bytes.
    package mutating func text(limit: Int = .max) throws(TooMuch) -> String {
        defer { reader.next() }
        guard let text = reader.text else { return "" }
        guard text.count <= limit else { throw TooMuch() }
        return String(decoding: text, as: UTF8.self)
    }

    package mutating func unsigned() -> UInt64 {
        defer { reader.next() }
        return switch reader.number {
        case .unsigned(let value): value
        case .signed(let value): UInt64(bitPattern: value)
        case .boolean(let value): value ? 1 : 0
        default: 0
        }
    }

    /// - Parameter element: reads one element, or the members of a structure.
    package mutating func elements<Element>(
        _ element: (inout ArgumentReader) throws(TooMuch) -> Element
    ) throws(TooMuch) -> [Element] {
        defer { reader.next() }
        var (elements, rest) = ([Element](), reader.inner)
        while rest.kind != .end {
            var members = ArgumentReader(rest.kind == .structure ? rest.inner : rest)
            elements.append(try element(&members))
            rest.next()
        }
        return elements
    }
}

extension ProcessReport {
    /// Reads the arguments of `Report`, after the round. Throws when there is more than `limit`.
    package init(_ arguments: inout ArgumentReader, limit: Amount) throws(ArgumentReader.TooMuch) {
        var rest = limit
        func take(_ amount: Amount) throws(ArgumentReader.TooMuch) {
            guard amount.isWithin(rest) else { throw ArgumentReader.TooMuch() }
            rest = rest - amount
        }
        suspensions = UInt32(truncatingIfNeeded: arguments.unsigned())
        names = try arguments.elements { row throws(ArgumentReader.TooMuch) in
            var report = NameReport(name: try row.text(limit: rest.bytes))
            try take(Amount(names: 1, bytes: report.name.utf8.count))
            let hasState = row.unsigned() != 0
            let state = StateReport(value: row.unsigned(), time: row.unsigned())
            if hasState { report.state = state }
            report.registrations = try row.elements { row throws(ArgumentReader.TooMuch) in
                try take(Amount(registrations: 1))
                let token = Int32(truncatingIfNeeded: row.unsigned())
                return RegistrationReport(
                    token: token,
                    // A kind from another version of the library counts as one without delivery.
                    kind: RegistrationKind(rawValue: try row.text(limit: 16)) ?? .plain,
                    suspensions: UInt32(truncatingIfNeeded: row.unsigned()),
                    deliveries: row.unsigned()
                )
            }
            report.monitors = try row.elements { row throws(ArgumentReader.TooMuch) in
                let token = Int32(truncatingIfNeeded: row.unsigned())
                let path = try row.text(limit: rest.bytes)
                try take(Amount(bytes: path.utf8.count, registrations: 1))
                return MonitorReport(token: token, path: path, flags: UInt32(truncatingIfNeeded: row.unsigned()))
            }
            return report
        }
    }
}

// Responses of notifyd, which come as values. `nil` if they have another form.

private func read<Row>(_ rows: DBusValue, _ row: ([DBusValue]) -> Row?) -> [Row]? {
    guard let values = rows.elementsValue else { return nil }
    var result: [Row] = []
    for value in values {
        guard case .structure(let members) = value, let row = row(members) else { return nil }
        result.append(row)
    }
    return result
}

extension NameReport {
    fileprivate init?(_ row: [DBusValue]) {
        guard row.count == 6, let name = row[0].stringValue, let hasState = row[1].booleanValue,
            let value = row[2].unsignedValue, let time = row[3].unsignedValue,
            let registrations = read(row[4], RegistrationReport.init), let monitors = read(row[5], MonitorReport.init)
        else { return nil }
        let state = hasState ? StateReport(value: value, time: time) : nil
        self.init(name: name, state: state, monitors: monitors, registrations: registrations)
    }
}

extension RegistrationReport {
    fileprivate init?(_ row: [DBusValue]) {
        guard row.count == 4, case .int32(let token) = row[0], case .string(let word) = row[1],
            case .uint32(let suspensions) = row[2], case .uint64(let deliveries) = row[3],
            let kind = RegistrationKind(rawValue: word)
        else { return nil }
        self.init(token: token, kind: kind, suspensions: suspensions, deliveries: deliveries)
    }
}

extension MonitorReport {
    fileprivate init?(_ row: [DBusValue]) {
        guard row.count == 3, case (.int32(let token), .string(let path), .uint32(let flags)) = (row[0], row[1], row[2])
        else { return nil }
        self.init(token: token, path: path, flags: flags)
    }
}

extension NameListing {
    fileprivate init?(_ row: [DBusValue]) {
        guard row.count == 3,
            case (.string(let name), .uint64(let state), .boolean(let isPermanent)) = (row[0], row[1], row[2])
        else { return nil }
        self.init(name: name, state: state, isPermanent: isPermanent)
    }
}

extension ProcessListing {
    fileprivate init?(_ row: [DBusValue]) {
        guard row.count == 5, case .string(let connection) = row[0], case .uint32(let process) = row[1],
            case .uint32(let user) = row[2], case .uint32(let suspensions) = row[3],
            let names = read(row[4], NameReport.init)
        else { return nil }
        let report = ProcessReport(suspensions: suspensions, names: names)
        self.init(connection: connection, process: process, user: user, report: report)
    }
}

extension ListPage {
    /// Reads the response to `List`.
    package init?(_ values: [DBusValue]) {
        guard values.count == 3, let names = read(values[0], NameListing.init),
            let processes = read(values[1], ProcessListing.init), let cursor = values[2].unsignedValue
        else { return nil }
        (self.names, self.processes, self.cursor) = (names, processes, cursor)
    }

    /// Adds the next page.
    package mutating func add(_ page: ListPage) {
        names += page.names
        processes += page.processes
        cursor = page.cursor
    }

    /// All names with their processes, for people.
    package var text: String {
        let names = Dictionary(names.map { (NotificationName($0.name), $0) }) { $1 }
        var clients: [NotificationName: String] = [:]
        for process in processes {
            for report in process.report.names {
                clients[NotificationName(report.name), default: ""] += Self.client(process, report)
            }
        }
        let texts = names.sorted { $0.value.name < $1.value.name }.map { key, name in
            "\nname \(name.name.quotedOnOneLine): state \(name.state)\(name.isPermanent ? ", permanent" : "")\n"
                + (clients[key] ?? "")
        }
        return texts.joined()
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
    /// Returns all pages of notifyd's list as one.
    ///
    /// - Parameter call: calls notifyd, and waits for the response.
    package static func list(
        _ call: (consuming DBusMessage) throws(DBusError) -> [DBusValue],
        options: DBusMessage.CallOptions = []
    ) throws(DBusError) -> ListPage {
        var list = ListPage()
        repeat {
            let answer = try call(try Self.call(.list, [.uint64(list.cursor)], options: options))
            // Cursors must increase. Otherwise a malicious notifyd could keep its caller in this loop forever.
            guard let page = ListPage(answer), page.cursor == 0 || page.cursor > list.cursor else {
                throw DBusError(
                    .malformed,
                    message: "the response to List has an unknown form",
                    attempted: "ask notifyd",
                    remedy: "use programs and notifyd of the same version"
                )
            }
            list.add(page)
        } while list.cursor != 0
        return list
    }

    /// Returns notifyd's status and all names with their processes, as text.
    package static func status(
        _ call: (consuming DBusMessage) throws(DBusError) -> [DBusValue],
        options: DBusMessage.CallOptions = []
    ) throws(DBusError) -> String {
        let summary = try call(try Self.call(.status, options: options)).first?.stringValue ?? ""
        return summary + (try list(call, options: options).text)
    }
}
