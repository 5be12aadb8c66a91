package import DBusTransport
import FoundationEssentials

extension CleanupReport {
    package var fields: DBusValue {
        .fields([
            "session": .uint64(session), "endedAt": .double(endedAt.timeIntervalSince1970),
            "outcome": .string(outcome.rawValue), "apps": .array(apps.map(\.fields), of: "a{sv}"),
        ])
    }

    package init(_ value: DBusValue?) throws(BrokerProtocol.Malformed) {
        guard let fields = value?.fieldsValue, let session = fields["session"]?.unsignedValue,
            case .double(let endedAt)? = fields["endedAt"], endedAt.isFinite,
            let outcome = fields["outcome"]?.stringValue.flatMap(Outcome.init)
        else { throw BrokerProtocol.Malformed("round") }
        var apps: [App] = []
        for value in fields["apps"]?.elementsValue ?? [] { apps.append(try App(value)) }
        self.init(session: session, endedAt: Date(timeIntervalSince1970: endedAt), outcome: outcome, apps: apps)
    }
}

extension CleanupReport.App {
    var fields: DBusValue {
        var fields: BrokerProtocol.Fields = [
            "identifier": .string(identifier), "progress": .string(progress.rawValue), "isRunning": .boolean(isRunning),
        ]
        let times = [("toldAfter", toldAfter), ("begunAfter", begunAfter), ("finishedAfter", finishedAfter)]
        for case (let key, let time?) in times { fields[key] = .double(time) }
        if let detail { fields["detail"] = .string(detail) }
        return .fields(fields)
    }

    init(_ value: DBusValue) throws(BrokerProtocol.Malformed) {
        guard let fields = value.fieldsValue, let identifier = fields["identifier"]?.stringValue,
            let progress = fields["progress"]?.stringValue.flatMap(CleanupReport.Progress.init)
        else { throw BrokerProtocol.Malformed("apps") }
        let time: (String) -> Double? = { key in
            guard case .double(let seconds)? = fields[key], seconds.isFinite else { return nil }
            return seconds
        }
        self.init(
            identifier: identifier,
            progress: progress,
            toldAfter: time("toldAfter"),
            begunAfter: time("begunAfter"),
            finishedAfter: time("finishedAfter"),
            detail: fields["detail"]?.stringValue,
            isRunning: fields["isRunning"]?.booleanValue ?? false
        )
    }
}
