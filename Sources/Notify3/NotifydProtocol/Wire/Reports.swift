package import DBusTransport
import Glibc

/// One registration, as its process tells of it.
package struct RegistrationReport: Sendable, Hashable {
    package var token: Int32
    package var kind: RegistrationKind
    /// How often it is suspended.
    package var suspensions: UInt32
    /// How often it was notified, without the notices that were held back.
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
    /// Of `notify_private.h`; 0 for all.
    package var flags: UInt32

    package init(token: Int32, path: String, flags: UInt32) {
        self.token = token
        self.path = path
        self.flags = flags
    }
}

/// One name in one process.
package struct NameReport: Sendable, Hashable {
    package var name: String
    /// The state that this process set last; `nil` for none.
    package var state: StateReport?
    package var monitors: [MonitorReport]
    /// Each registration, where they were asked for.
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

/// A value and when it was set.
package struct StateReport: Sendable, Hashable {
    package var value: UInt64
    /// Nanoseconds of the machine's boot clock (`CLOCK_BOOTTIME`), which all processes share.
    package var time: UInt64

    package init(value: UInt64, time: UInt64) {
        self.value = value
        self.time = time
    }
}

/// The clock of states: it does not go back, and all processes of the machine share it.
package enum BootClock {
    /// Nanoseconds since the machine started.
    package static var now: UInt64 {
        var time = timespec()
        clock_gettime(CLOCK_BOOTTIME, &time)
        return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
    }
}

/// The report of a process about itself.
package struct ProcessReport: Sendable, Hashable {
    /// How often the whole process is suspended.
    package var suspensions: UInt32
    package var names: [NameReport]

    package init(suspensions: UInt32 = 0, names: [NameReport] = []) {
        self.suspensions = suspensions
        self.names = names
    }
}

/// A process in notifyd's list: its report, and its identity according to the bus.
package struct ProcessListing: Sendable, Hashable {
    /// Its unique bus name.
    package var connection: String
    package var process: UInt32
    package var user: UInt32
    /// The program's file; empty where notifyd may not see it.
    package var program: String
    package var report: ProcessReport

    package init(connection: String, process: UInt32, user: UInt32, program: String, report: ProcessReport) {
        self.connection = connection
        self.process = process
        self.user = user
        self.program = program
        self.report = report
    }
}

/// A name in notifyd's list.
package struct NameListing: Sendable, Hashable {
    package var name: String
    package var state: UInt64
    /// Whether the configuration keeps it for good.
    package var isPermanent: Bool

    package init(name: String, state: UInt64, isPermanent: Bool) {
        self.name = name
        self.state = state
        self.isPermanent = isPermanent
    }
}

// Dictionaries on the outside, so that both sides can grow; rows where there may be a hundred thousand.

extension RegistrationReport {
    fileprivate static let signature = "(isut)"

    fileprivate var value: DBusValue {
        .structure([.int32(token), .string(kind.rawValue), .uint32(suspensions), .uint64(deliveries)])
    }

    fileprivate init(_ value: DBusValue) throws(NotifydProtocol.FieldError) {
        guard case .structure(let parts) = value, parts.count == 4,
            case (.int32(let token), .string(let kind), .uint32(let suspensions), .uint64(let deliveries)) =
                (parts[0], parts[1], parts[2], parts[3]),
            let kind = RegistrationKind(rawValue: kind)
        else { throw NotifydProtocol.FieldError("registrations") }
        self.init(token: token, kind: kind, suspensions: suspensions, deliveries: deliveries)
    }
}

extension MonitorReport {
    fileprivate static let signature = "(isu)"

    fileprivate var value: DBusValue { .structure([.int32(token), .string(path), .uint32(flags)]) }

    fileprivate init(_ value: DBusValue) throws(NotifydProtocol.FieldError) {
        guard case .structure(let parts) = value, parts.count == 3,
            case (.int32(let token), .string(let path), .uint32(let flags)) = (parts[0], parts[1], parts[2])
        else { throw NotifydProtocol.FieldError("monitors") }
        self.init(token: token, path: path, flags: flags)
    }
}

extension NameReport {
    fileprivate var fields: [String: DBusValue] {
        var fields: [String: DBusValue] = ["name": .string(name)]
        if let state { fields["state"] = .structure([.uint64(state.value), .uint64(state.time)]) }
        if !monitors.isEmpty { fields["monitors"] = .array(monitors.map(\.value), of: MonitorReport.signature) }
        if !registrations.isEmpty {
            fields["registrations"] = .array(registrations.map(\.value), of: RegistrationReport.signature)
        }
        return fields
    }

    fileprivate init(_ value: DBusValue) throws(NotifydProtocol.FieldError) {
        guard let fields = value.fieldsValue, let name = fields["name"]?.stringValue else {
            throw NotifydProtocol.FieldError("name")
        }
        self.init(
            name: name,
            state: try fields["state"].map(StateReport.init),
            monitors: try elements(fields["monitors"], "monitors").map(MonitorReport.init),
            registrations: try elements(fields["registrations"], "registrations").map(RegistrationReport.init)
        )
    }
}

extension StateReport {
    fileprivate init(_ value: DBusValue) throws(NotifydProtocol.FieldError) {
        guard case .structure(let parts) = value, parts.count == 2, let state = parts[0].unsignedValue,
            let time = parts[1].unsignedValue
        else { throw NotifydProtocol.FieldError("state") }
        self.init(value: state, time: time)
    }
}

extension ProcessReport {
    /// As it travels.
    package var value: DBusValue { .fields(fields) }

    fileprivate var fields: [String: DBusValue] {
        ["suspensions": .uint32(suspensions), "names": .array(names.map { .fields($0.fields) }, of: "a{sv}")]
    }

    /// Reads one that came from another process.
    package init(_ value: DBusValue?) throws(NotifydProtocol.FieldError) {
        guard let fields = value?.fieldsValue, case .uint32(let suspensions) = fields["suspensions"] else {
            throw NotifydProtocol.FieldError("suspensions")
        }
        self.init(suspensions: suspensions, names: try elements(fields["names"], "names").map(NameReport.init))
    }
}

extension ProcessListing {
    /// As it travels.
    package var value: DBusValue {
        .fields([
            "connection": .string(connection), "process": .uint32(process), "user": .uint32(user),
            "program": .string(program), "report": report.value,
        ])
    }

    /// Reads one that came from notifyd.
    package init(_ value: DBusValue) throws(NotifydProtocol.FieldError) {
        guard let fields = value.fieldsValue, let connection = fields["connection"]?.stringValue,
            case .uint32(let process) = fields["process"], case .uint32(let user) = fields["user"],
            let program = fields["program"]?.stringValue
        else { throw NotifydProtocol.FieldError("process") }
        self.init(
            connection: connection,
            process: process,
            user: user,
            program: program,
            report: try ProcessReport(fields["report"])
        )
    }
}

extension NameListing {
    /// As it travels.
    package var value: DBusValue {
        .fields(["name": .string(name), "state": .uint64(state), "permanent": .boolean(isPermanent)])
    }

    /// Reads one that came from notifyd.
    package init(_ value: DBusValue) throws(NotifydProtocol.FieldError) {
        guard let fields = value.fieldsValue, let name = fields["name"]?.stringValue,
            let state = fields["state"]?.unsignedValue, let isPermanent = fields["permanent"]?.booleanValue
        else { throw NotifydProtocol.FieldError("name") }
        self.init(name: name, state: state, isPermanent: isPermanent)
    }
}

private func elements(_ value: DBusValue?, _ field: String) throws(NotifydProtocol.FieldError) -> [DBusValue] {
    guard let value else { return [] }
    guard case .array(let elements, _) = value else { throw NotifydProtocol.FieldError(field) }
    return elements
}
