package import DBusTransport

// Dictionaries on the outside, so that both sides can grow; rows where there may be a hundred thousand.

extension RegistrationReport {
    fileprivate static let signature = "(isut)"

    fileprivate var value: DBusValue {
        .structure([.int32(token), .string(kind.rawValue), .uint32(suspensions), .uint64(deliveries)])
    }

    fileprivate init(_ value: DBusValue) throws(NotifydProtocol.Malformed) {
        guard case .structure(let parts) = value, parts.count == 4,
            case (.int32(let token), .string(let kind), .uint32(let suspensions), .uint64(let deliveries)) =
                (parts[0], parts[1], parts[2], parts[3]),
            let kind = RegistrationKind(rawValue: kind)
        else { throw NotifydProtocol.Malformed("registrations") }
        self.init(token: token, kind: kind, suspensions: suspensions, deliveries: deliveries)
    }
}

extension MonitorReport {
    fileprivate static let signature = "(isu)"

    fileprivate var value: DBusValue { .structure([.int32(token), .string(path), .uint32(flags)]) }

    fileprivate init(_ value: DBusValue) throws(NotifydProtocol.Malformed) {
        guard case .structure(let parts) = value, parts.count == 3,
            case (.int32(let token), .string(let path), .uint32(let flags)) = (parts[0], parts[1], parts[2])
        else { throw NotifydProtocol.Malformed("monitors") }
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

    fileprivate init(_ value: DBusValue) throws(NotifydProtocol.Malformed) {
        guard let fields = value.fieldsValue, let name = fields["name"]?.stringValue else {
            throw NotifydProtocol.Malformed("name")
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
    fileprivate init(_ value: DBusValue) throws(NotifydProtocol.Malformed) {
        guard case .structure(let parts) = value, parts.count == 2, let state = parts[0].unsignedValue,
            let time = parts[1].unsignedValue
        else { throw NotifydProtocol.Malformed("state") }
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
    package init(_ value: DBusValue?) throws(NotifydProtocol.Malformed) {
        guard let fields = value?.fieldsValue, case .uint32(let suspensions) = fields["suspensions"] else {
            throw NotifydProtocol.Malformed("suspensions")
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
    package init(_ value: DBusValue) throws(NotifydProtocol.Malformed) {
        guard let fields = value.fieldsValue, let connection = fields["connection"]?.stringValue,
            case .uint32(let process) = fields["process"], case .uint32(let user) = fields["user"],
            let program = fields["program"]?.stringValue
        else { throw NotifydProtocol.Malformed("process") }
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
    package init(_ value: DBusValue) throws(NotifydProtocol.Malformed) {
        guard let fields = value.fieldsValue, let name = fields["name"]?.stringValue,
            let state = fields["state"]?.unsignedValue, let isPermanent = fields["permanent"]?.booleanValue
        else { throw NotifydProtocol.Malformed("name") }
        self.init(name: name, state: state, isPermanent: isPermanent)
    }
}

private func elements(_ value: DBusValue?, _ field: String) throws(NotifydProtocol.Malformed) -> [DBusValue] {
    guard let value else { return [] }
    guard case .array(let elements, _) = value else { throw NotifydProtocol.Malformed(field) }
    return elements
}
