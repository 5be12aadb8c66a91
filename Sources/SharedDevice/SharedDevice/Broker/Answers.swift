public import DBus
import FoundationEssentials

/// A session whose data an app still has to delete, according to the broker's ledger.
@_spi(Extensions) public struct OwedSession: Sendable, Hashable {
    @_spi(Extensions) public let epoch: UInt64
    @_spi(Extensions) public let account: Account?
    /// A number that changes when a process of the app that had the account ends without a report, and after that at
    /// each start of the broker. 0 if no process ended that way.
    ///
    /// Such a process may have stored data after another one's cleanup. A receipt therefore returns the mark under
    /// which its cleanup began, and counts only under that mark.
    @_spi(Extensions) public let mark: UInt64
    /// Whether the broker also waits for another process of the app. Until that process learns of the sign-out, it may
    /// store data.
    @_spi(Extensions) public let isShared: Bool

    @_spi(Extensions) public init(epoch: UInt64, account: Account?, mark: UInt64 = 0, isShared: Bool = false) {
        self.epoch = epoch
        self.account = account
        self.mark = mark
        self.isShared = isShared
    }

    @_spi(Extensions) public var fields: DBusValue {
        var fields: BrokerProtocol.Fields = ["epoch": .uint64(epoch)]
        if let account { fields["account"] = account.fields }
        if mark > 0 { fields["mark"] = .uint64(mark) }
        if isShared { fields["shared"] = .boolean(true) }
        return .fields(fields)
    }

    @_spi(Extensions) public init(_ value: DBusValue) throws(BrokerProtocol.Malformed) {
        guard let fields = value.fieldsValue, let epoch = fields["epoch"]?.unsignedValue else {
            throw BrokerProtocol.Malformed("owed")
        }
        mark = fields["mark"]?.unsignedValue ?? 0
        isShared = fields["shared"]?.booleanValue ?? false
        self.epoch = epoch
        account = if let value = fields["account"] { try Account(value) } else { nil }
    }
}

@_spi(Extensions) public struct SessionAnswer: Sendable, Hashable {
    @_spi(Extensions) public let session: DeviceSession
    /// The sessions that this app has to clean up according to the ledger, oldest first.
    @_spi(Extensions) public let owed: [OwedSession]
    /// Whether an account is signed in that is withheld from this app until it has cleaned up.
    @_spi(Extensions) public let isWithheld: Bool
    /// Whether an app must finish its pending cleanup first.
    @_spi(Extensions) public let isStrict: Bool

    @_spi(Extensions) public init(
        session: DeviceSession,
        owed: [OwedSession] = [],
        isWithheld: Bool = false,
        isStrict: Bool = false
    ) {
        self.isStrict = isStrict
        self.session = session
        self.owed = owed
        self.isWithheld = isWithheld
    }

    @_spi(Extensions) public var fields: BrokerProtocol.Fields {
        var fields = session.fields
        if !owed.isEmpty { fields["owed"] = .array(owed.map(\.fields), of: "a{sv}") }
        if isWithheld { fields["withheld"] = .boolean(true) }
        if isStrict { fields["strict"] = .boolean(true) }
        return fields
    }

    @_spi(Extensions) public init(_ fields: BrokerProtocol.Fields) throws(BrokerProtocol.Malformed) {
        session = try DeviceSession(fields)
        var owed: [OwedSession] = []
        for value in fields["owed"]?.elementsValue ?? [] { owed.append(try OwedSession(value)) }
        self.owed = owed
        isWithheld = fields["withheld"]?.booleanValue ?? false
        isStrict = fields["strict"]?.booleanValue ?? false
    }
}

extension CleanupReport {
    @_spi(Extensions) public var fields: DBusValue {
        .fields([
            "session": .uint64(session), "endedAt": .double(endedAt.timeIntervalSince1970),
            "outcome": .string(outcome.rawValue), "apps": .array(apps.map(\.fields), of: "a{sv}"),
        ])
    }

    @_spi(Extensions) public init(_ value: DBusValue?) throws(BrokerProtocol.Malformed) {
        guard let fields = value?.fieldsValue, let session = fields["session"]?.unsignedValue,
            // The limit is the year 9999, which every calendar supports.
            case .double(let endedAt)? = fields["endedAt"], (0...253_402_300_799).contains(endedAt),
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
        if let user { fields["user"] = .uint32(user) }
        if let detail { fields["detail"] = .string(detail) }
        return .fields(fields)
    }

    init(_ value: DBusValue) throws(BrokerProtocol.Malformed) {
        guard let fields = value.fieldsValue, let identifier = fields["identifier"]?.stringValue,
            let progress = fields["progress"]?.stringValue.flatMap(CleanupReport.Progress.init)
        else { throw BrokerProtocol.Malformed("apps") }
        let time: (String) -> Double? = { key in
            // A century is longer than any round.
            guard case .double(let seconds)? = fields[key], abs(seconds) <= 3.2e9 else { return nil }
            return seconds
        }
        self.init(
            identifier: identifier,
            user: fields["user"]?.unsignedValue.flatMap(UInt32.init(exactly:)),
            progress: progress,
            toldAfter: time("toldAfter"),
            begunAfter: time("begunAfter"),
            finishedAfter: time("finishedAfter"),
            detail: fields["detail"]?.stringValue,
            isRunning: fields["isRunning"]?.booleanValue ?? false
        )
    }
}
