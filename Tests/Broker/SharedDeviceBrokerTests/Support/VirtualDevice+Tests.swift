import DBus
import Foundation
import Identity
@_spi(Extensions) import SharedDevice
import Testing
import simulate

@testable import BrokerCore

extension VirtualDisk {
    /// The log as the store would read it. The first entry has the number 1.
    func lines(_ filter: AuditFilter) -> [AuditLine] {
        let all = log.enumerated().map { AuditLine(sequence: Int64($0 + 1), entry: $1, account: nil) }
        let found = all.filter { $0.sequence > filter.after ?? 0 }
        return filter.first.map { Array(found.prefix($0)) } ?? Array(found.suffix(filter.last ?? found.count))
    }

    func part(_ app: String, of session: UInt64, user: UInt32 = 1000) -> CleanupLedger.Part? {
        parts[session]?[Participant(app: VirtualDevice.key(app, user: user), user: user)]
    }

    func entries(_ event: AuditEntry.Event, of session: UInt64? = nil, app: String? = nil) -> [AuditEntry] {
        log.filter { $0.event == event && (session == nil || $0.session == session) && (app == nil || $0.app == app) }
    }
}

// MARK: Common steps

extension VirtualDevice {
    /// The identifier of an app without a manifest.
    static func key(_ app: String, user: UInt32 = 1000) -> String { "\(app) (/usr/bin/app, uid \(user))" }

    static func signIn(
        _ name: String,
        password: String = "right",
        patience: Duration = .zero,
        label: String? = nil
    ) -> Request.Call {
        let credentials = SignInRequest(username: name, password: Secret(password))
        return .signIn(credentials, scopes: ["s"], patience: patience, label: label)
    }

    static func badge(_ number: String, pin: String = "1234") -> SignInRequest {
        .badge(number: Secret(number), pin: Secret(pin))
    }

    static func signIn(_ credentials: SignInRequest) -> Request.Call {
        .signIn(credentials, scopes: ["s"], patience: .zero, label: nil)
    }

    @discardableResult
    func signIn(_ name: String, by app: App) throws -> UInt64 {
        let fields = try ask(app, Self.signIn(name))
        return try #require(fields["epoch"]?.unsignedValue)
    }

    func refusalOfSignIn(_ name: String, by app: App) -> Refusal? { refusal(send(app, Self.signIn(name))) }

    func signOut(by app: App) throws {
        try ask(app, .signOut(identifier: try #require(state.device.account).identifier, session: nil))
    }

    func session(for app: App) throws -> SessionAnswer {
        let answer = try SessionAnswer(ask(app, .currentAccount))
        marks[app.connection] = Dictionary(uniqueKeysWithValues: answer.owed.map { ($0.epoch, $0.mark) })
        return answer
    }

    func owed(by app: App) throws -> [UInt64] { try session(for: app).owed.map(\.epoch) }

    func acquireToken(for name: String, _ scopes: Set<String> = ["s"], refresh: Bool = false) -> Request.Call {
        .acquireToken(identifier: Account.named(name).identifier, scopes: scopes, refresh: refresh, session: nil)
    }

    func token(for name: String, _ scopes: Set<String> = ["s"], refresh: Bool = false, by app: App) throws -> String {
        try WireToken(ask(app, acquireToken(for: name, scopes, refresh: refresh))["token"]).value
    }

    func report(_ progress: CleanupReport.Progress, of session: UInt64, by app: App, detail: String? = nil) throws {
        let mark = marks[app.connection]?[session] ?? 0
        try ask(app, .report(progress, session: session, mark: mark, detail: detail))
    }

    /// Makes the apps ask for their debts and report all of them as finished.
    func finish(_ apps: App...) throws {
        for app in apps { for session in try owed(by: app) { try report(.finished, of: session, by: app) } }
    }

    func round(_ session: UInt64? = nil, by app: App) throws -> CleanupReport? {
        let call = Request.Call.round(session: session, after: nil, awaitsEnd: false, patience: .zero)
        let fields = try ask(app, call)
        return fields.isEmpty ? nil : try CleanupReport(fields["round"])
    }

    func status() throws -> BrokerProtocol.Fields {
        try ask(administrator, .status(known: nil, patience: .zero))
    }

    /// The apps for which the next sign-in waits.
    var heldFor: [String] { state.facts.isSignInHeld ? state.facts.awaited : [] }

    func place(of number: UInt64) -> Int? { happenings.firstIndex(of: .replied(number)) }
}
