import Basics
import DBus
package import DeviceConfiguration
package import FoundationEssentials
@_spi(Extensions) package import SharedDevice

/// The broker's response to `GetStatus`. A field that is missing or has another type becomes a default, never an error.
/// The properties' names are the keys of JSON that programs rely on.
package struct ObservedDevice: Sendable, Equatable, Encodable {
    /// An app that has a manifest, runs, holds data or owes a cleanup.
    package struct App: Sendable, Equatable, Encodable {
        package let identifier: String
        /// The user that runs the app; `nil` if it was never seen.
        package let user: UInt32?
        package let isRunning: Bool
        package let holdsData: Bool
        /// The sessions whose cleanup the app owes, oldest first.
        package let owes: [UInt64]
        /// Why the bus cannot start the app; `nil` if it can.
        package let startProblem: String?
    }

    package struct Problem: Sendable, Equatable, Encodable {
        package enum Kind: String, Sendable, CaseIterable, Encodable {
            case configuration, store, key, enforcement, login, manifest, certificate
        }

        package let kind: Kind
        /// A sentence for people.
        package let text: String
    }

    /// Grows with each change. The next request contains it.
    package let revision: UInt64
    /// The device's clock at the time of the response.
    package let time: Date
    package let brokerVersion: String
    package let mode: String
    package let epoch: UInt64
    package let organization: String?
    /// The username of the signed-in account; `nil` if no account is signed in.
    package let account: String?
    package let displayName: String?
    /// The name of the signed-in account for people.
    package var person: String? { displayName ?? account }
    package let signedInAt: Date?
    /// When the session ends by itself, at the time of the response; `nil` if it does not.
    package let sessionEnd: SessionEnd?
    /// Whether the screen is locked.
    package let isLocked: Bool
    package let cleanupPolicy: String
    /// In seconds.
    package let cleanupTimeout: Double?
    /// The apps that the next sign-in waits for.
    package let signInHeldFor: [String]
    package let problems: [Problem]
    package let certificates: [ObservedCertificate]
    /// The sessions whose rounds are known, oldest first.
    package let rounds: [UInt64]
    package let apps: [App]

    package init(_ fields: BrokerProtocol.Fields) {
        revision = fields["revision"]?.unsignedValue ?? 0
        time = fields["time"]?.date ?? Date(timeIntervalSince1970: 0)
        brokerVersion = fields["brokerVersion"]?.stringValue ?? ""
        mode = fields["mode"]?.stringValue ?? ""
        epoch = fields["epoch"]?.unsignedValue ?? 0
        organization = fields["organization"]?.stringValue
        let names = fields["account"]?.fieldsValue
        account = names?["username"]?.stringValue
        displayName = (names?["displayName"]?.stringValue).flatMap { $0.isEmpty ? nil : $0 }
        signedInAt = fields["signedInAt"]?.date
        sessionEnd = SessionEnd(fields)
        isLocked = fields["locked"]?.booleanValue ?? false
        cleanupPolicy = fields["cleanupPolicy"]?.stringValue ?? ""
        cleanupTimeout = fields["cleanupTimeout"]?.seconds
        signInHeldFor = fields["signInHeldFor"]?.stringsValue ?? []
        let single = Problem.Kind.allCases.compactMap { kind in
            fields["\(kind.rawValue)Problem"]?.stringValue.map { Problem(kind: kind, text: $0) }
        }
        let notEnforced = fields["enforcementProblems"]?.stringsValue ?? []
        let refused = fields["manifestProblems"]?.stringsValue ?? []
        let certificates = DeviceCertificate.all(in: fields)
        let now = time.timeIntervalSince1970
        self.certificates = certificates.map { ObservedCertificate($0, now: now) }
        problems =
            single + notEnforced.map { Problem(kind: .enforcement, text: $0) }
            + refused.map { Problem(kind: .manifest, text: $0) }
            + certificates.compactMap { $0.warning(now: now) }.map { Problem(kind: .certificate, text: $0) }
        rounds = fields["rounds"]?.numbers ?? []
        apps = (fields["apps"]?.elementsValue ?? []).compactMap(\.fieldsValue).compactMap(App.init)
    }
}

/// A certificate whose end would stop a function of the device. The names are keys of JSON that programs rely on.
package struct ObservedCertificate: Sendable, Equatable, Encodable {
    package let use: DeviceCertificate.Use
    package let file: String
    package let end: Date?
    /// The remaining whole days; negative after the end.
    package let days: Int?
    /// Why the end is unknown.
    package let problem: String?
    /// A sentence for people. Near the end it is a warning.
    package let text: String

    package init(_ certificate: DeviceCertificate, now: Double) {
        use = certificate.use
        file = certificate.file
        days = certificate.days(now: now)
        text = certificate.warning(now: now) ?? certificate.words(now: now)
        switch certificate.end {
        case .success(let end): (self.end, problem) = (Date(timeIntervalSince1970: end), nil)
        case .failure(let problem): (end, self.problem) = (nil, problem.description)
        }
    }
}

extension DeviceCertificate {
    /// The certificates in the broker's response to `GetStatus` or `GetRunningApps`.
    package static func all(in fields: BrokerProtocol.Fields) -> [DeviceCertificate] {
        (fields["certificates"]?.elementsValue ?? []).compactMap(\.fieldsValue).compactMap { fields in
            guard let use = fields["use"]?.stringValue.flatMap(Use.init), let file = fields["file"]?.stringValue else {
                return nil
            }
            let end = fields["end"]?.date?.timeIntervalSince1970
            let problem = Problem(fields["problem"]?.stringValue ?? "\(file) has an unknown end")
            return DeviceCertificate(use, file: file, end: end.map { .success($0) } ?? .failure(problem))
        }
    }
}

extension ObservedDevice.App {
    /// - Returns: `nil` for an app without an identifier.
    init?(_ fields: BrokerProtocol.Fields) {
        guard let identifier = fields["identifier"]?.stringValue else { return nil }
        self.identifier = identifier
        user = fields["user"]?.unsignedValue.flatMap { UInt32(exactly: $0) }
        isRunning = fields["isRunning"]?.booleanValue ?? false
        holdsData = fields["holdsData"]?.booleanValue ?? false
        owes = fields["owes"]?.numbers ?? []
        startProblem = fields["startProblem"]?.stringValue
    }
}

/// A log entry in the broker's response to `GetLog`. It names no person.
package struct ObservedEntry: Sendable, Equatable {
    package let sequence: UInt64
    package let at: Date
    package let event: String
    package let session: UInt64?
    package let app: String?
    package let detail: String?

    /// The entries of a response, oldest first. The next request could not refer to an entry without a number.
    package static func all(_ answer: BrokerProtocol.Fields) -> [ObservedEntry] {
        (answer["entries"]?.elementsValue ?? []).compactMap(\.fieldsValue).compactMap { fields in
            guard let sequence = fields["sequence"]?.unsignedValue else { return nil }
            return ObservedEntry(
                sequence: sequence,
                at: fields["at"]?.date ?? Date(timeIntervalSince1970: 0),
                event: fields["event"]?.stringValue ?? "",
                session: fields["session"]?.unsignedValue,
                app: fields["app"]?.stringValue,
                detail: fields["detail"]?.stringValue
            )
        }
    }
}

/// A snapshot of a device as an observer knows it. Pure.
package struct DeviceView: Sendable, Equatable {
    package enum Link: String, Sendable, Encodable {
        case asking
        case responds
        /// The broker does not respond. The session is then unknown, which differs from “no user signed in” (CO-4).
        case gone
        /// The observer lacks the right to see the device.
        case denied
    }

    /// The maximum number of log entries; the oldest are removed first.
    package static let mostEntries = 200

    package private(set) var link = Link.asking
    /// As of the last response.
    package private(set) var device: ObservedDevice?
    /// The latest round of cleanups.
    package private(set) var round: CleanupReport?
    /// Oldest first.
    package private(set) var entries: [ObservedEntry] = []

    package init() {}

    /// The session that a user could end now; `nil` if there is none, or if it is unknown.
    package var openSession: UInt64? {
        guard link == .responds, let device, device.account != nil else { return nil }
        return device.epoch
    }

    package mutating func take(_ device: ObservedDevice, _ round: CleanupReport?) {
        (self.device, self.round, link) = (device, round, .responds)
    }

    /// The request failed. If the observer lost the right to see the device, the known data is cleared, too.
    package mutating func lose(_ link: Link) {
        if link == .denied { self = DeviceView() }
        self.link = link
    }

    package mutating func add(_ news: [ObservedEntry]) {
        let last = entries.last?.sequence ?? 0
        entries = (entries + news.filter { $0.sequence > last }).suffix(Self.mostEntries)
    }
}

extension DBusValue {
    fileprivate var seconds: Double? {
        if case .double(let value) = self, value.isFinite { value } else { nil }
    }

    /// A time that a clock can show: up to the year 9999.
    fileprivate var date: Date? {
        seconds.flatMap { (0...253_402_300_799).contains($0) ? Date(timeIntervalSince1970: $0) : nil }
    }

    fileprivate var numbers: [UInt64]? { elementsValue?.compactMap(\.unsignedValue) }
}
