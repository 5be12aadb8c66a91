package import DBus

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

    /// An argument does not have the form that the protocol requires.
    package struct FormError: Error {
        package init() {}
    }
}

// MARK: - Writing

private func rows(_ values: some Sequence<DBusValue>, _ signature: String) -> DBusValue {
    .array(Array(values), of: String(signature.dropFirst()))
}

extension ProcessReport {
    /// The arguments of `Report`, after the round.
    package var values: [DBusValue] {
        [.uint32(suspensions), rows(names.lazy.map(\.value), NotifydProtocol.nameRows)]
    }
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

    fileprivate init(_ suspensions: DBusValue, _ names: DBusValue) throws(NotifydProtocol.FormError) {
        guard case .uint32(let suspensions) = suspensions else { throw NotifydProtocol.FormError() }
        self.init(suspensions: suspensions, names: try members(names, 6).map(NameReport.init))
    }
}

// Responses of notifyd, which come as values.

private func members(_ rows: DBusValue, _ count: Int) throws(NotifydProtocol.FormError) -> [[DBusValue]] {
    guard let rows = rows.elementsValue else { throw NotifydProtocol.FormError() }
    return try rows.map { row throws(NotifydProtocol.FormError) in
        guard case .structure(let members) = row, members.count == count else { throw NotifydProtocol.FormError() }
        return members
    }
}

extension NameReport {
    fileprivate init(_ row: [DBusValue]) throws(NotifydProtocol.FormError) {
        guard let name = row[0].stringValue, let hasState = row[1].booleanValue, let value = row[2].unsignedValue,
            let time = row[3].unsignedValue
        else { throw NotifydProtocol.FormError() }
        self.init(
            name: name,
            state: hasState ? StateReport(value: value, time: time) : nil,
            monitors: try members(row[5], 3).map(MonitorReport.init),
            registrations: try members(row[4], 4).map(RegistrationReport.init)
        )
    }
}

extension RegistrationReport {
    fileprivate init(_ row: [DBusValue]) throws(NotifydProtocol.FormError) {
        guard
            case (.int32(let token), .string(let kind), .uint32(let suspensions), .uint64(let deliveries)) =
                (row[0], row[1], row[2], row[3]), let kind = RegistrationKind(rawValue: kind)
        else { throw NotifydProtocol.FormError() }
        self.init(token: token, kind: kind, suspensions: suspensions, deliveries: deliveries)
    }
}

extension MonitorReport {
    fileprivate init(_ row: [DBusValue]) throws(NotifydProtocol.FormError) {
        guard case (.int32(let token), .string(let path), .uint32(let flags)) = (row[0], row[1], row[2]) else {
            throw NotifydProtocol.FormError()
        }
        self.init(token: token, path: path, flags: flags)
    }
}

extension ListPage {
    /// Reads the response to `List`.
    package init(_ values: [DBusValue]) throws(NotifydProtocol.FormError) {
        guard values.count == 3, let cursor = values[2].unsignedValue else { throw NotifydProtocol.FormError() }
        self.cursor = cursor
        names = try members(values[0], 3).map { row throws(NotifydProtocol.FormError) in
            guard case (.string(let name), .uint64(let state), .boolean(let isPermanent)) = (row[0], row[1], row[2])
            else { throw NotifydProtocol.FormError() }
            return NameListing(name: name, state: state, isPermanent: isPermanent)
        }
        processes = try members(values[1], 5).map { row throws(NotifydProtocol.FormError) in
            guard case (.string(let connection), .uint32(let process), .uint32(let user)) = (row[0], row[1], row[2])
            else { throw NotifydProtocol.FormError() }
            return ProcessListing(
                connection: connection,
                process: process,
                user: user,
                report: try ProcessReport(row[3], row[4])
            )
        }
    }
}
