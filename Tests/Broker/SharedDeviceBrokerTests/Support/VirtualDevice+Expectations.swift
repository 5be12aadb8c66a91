import DBus
import Identity
@_spi(Extensions) import SharedDevice
import Testing
import simulate

@testable import BrokerCore

/// Common expectations of the tests of the broker's rules.
///
/// These are functions because each use of `#expect` takes ten times as long to compile as a call.
extension VirtualDevice {
    func expectSignedIn(_ comment: Comment? = nil, sourceLocation: SourceLocation = #_sourceLocation) {
        #expect(state.device.account != nil, comment, sourceLocation: sourceLocation)
    }

    func expectSignedOut(_ comment: Comment? = nil, sourceLocation: SourceLocation = #_sourceLocation) {
        #expect(state.device.account == nil, comment, sourceLocation: sourceLocation)
    }

    /// Advances the time first, and wakes the broker at each of its deadlines.
    func expectSignedIn(after pause: Duration, sourceLocation: SourceLocation = #_sourceLocation) {
        advance(by: pause)
        expectSignedIn(sourceLocation: sourceLocation)
    }

    /// Advances the time first, and wakes the broker at each of its deadlines.
    func expectSignedOut(after pause: Duration, sourceLocation: SourceLocation = #_sourceLocation) {
        advance(by: pause)
        expectSignedOut(sourceLocation: sourceLocation)
    }

    /// Expects that the device is signed out, also after a restart.
    func expectSignedOutOnDisk(sourceLocation: SourceLocation = #_sourceLocation) {
        #expect(state.device.account == nil && disk.device.account == nil, sourceLocation: sourceLocation)
    }

    /// Expects this signed-in user; `nil` for a signed-out device.
    ///
    /// - Parameter causes: why each session so far has ended, in order.
    func expectPerson(
        _ name: String?,
        signedOutBy causes: [String]? = nil,
        _ comment: Comment? = nil,
        sourceLocation: SourceLocation = #_sourceLocation
    ) {
        #expect(person == name, comment, sourceLocation: sourceLocation)
        if let causes { #expect(signOutCauses == causes, comment, sourceLocation: sourceLocation) }
    }

    func expectUnanswered(
        _ request: UInt64,
        _ comment: Comment? = nil,
        sourceLocation: SourceLocation = #_sourceLocation
    ) {
        #expect(replies[request] == nil, comment, sourceLocation: sourceLocation)
    }

    func expectRefused(
        _ request: UInt64,
        _ expected: Refusal,
        _ comment: Comment? = nil,
        sourceLocation: SourceLocation = #_sourceLocation
    ) {
        #expect(refusal(request) == expected, comment, sourceLocation: sourceLocation)
    }

    func expectRefused(
        _ request: UInt64,
        code: SharedDeviceError.Code,
        _ comment: Comment? = nil,
        sourceLocation: SourceLocation = #_sourceLocation
    ) {
        #expect(refusal(request)?.code == code, comment, sourceLocation: sourceLocation)
    }

    func expectOwed(
        _ sessions: [UInt64],
        by app: App,
        _ comment: Comment? = nil,
        sourceLocation: SourceLocation = #_sourceLocation
    ) throws {
        let owed = try owed(by: app)
        #expect(owed == sessions, comment, sourceLocation: sourceLocation)
    }

    /// Expects that the app is told this account; `nil` for none.
    func expectAccount(
        _ name: String?,
        for app: App,
        _ comment: Comment? = nil,
        sourceLocation: SourceLocation = #_sourceLocation
    ) throws {
        let account = try session(for: app).session.account
        #expect(account?.username == name, comment, sourceLocation: sourceLocation)
    }

    func expectPasswordChecks(
        _ count: Int,
        _ comment: Comment? = nil,
        sourceLocation: SourceLocation = #_sourceLocation
    ) {
        #expect(passwordChecks == count, comment, sourceLocation: sourceLocation)
    }

    func expectAnnouncements(_ count: Int, _ comment: Comment? = nil, sourceLocation: SourceLocation = #_sourceLocation)
    {
        #expect(announcements == count, comment, sourceLocation: sourceLocation)
    }

    /// Each element is one request to logind.
    func expectEndedLogins(_ sessions: [[String]], sourceLocation: SourceLocation = #_sourceLocation) {
        #expect(endedLogins == sessions, sourceLocation: sourceLocation)
    }

    /// - Parameter pause: the time to advance first.
    func expectRenewals(_ count: Int, after pause: Duration? = nil, sourceLocation: SourceLocation = #_sourceLocation) {
        if let pause { advance(by: pause) }
        #expect(provider.renewals.count == count, sourceLocation: sourceLocation)
    }

    func expectEnds(_ count: Int, sourceLocation: SourceLocation = #_sourceLocation) {
        #expect(provider.ends.count == count, sourceLocation: sourceLocation)
    }

    func expectEnds(of persons: [String], sourceLocation: SourceLocation = #_sourceLocation) {
        #expect(provider.ends.map(\.person.subject) == persons, sourceLocation: sourceLocation)
    }

    /// Expects that the user must reauthenticate and the session continues.
    func expectPersonWanted(sourceLocation: SourceLocation = #_sourceLocation) {
        #expect(state.provider.needsPerson && state.device.account != nil, sourceLocation: sourceLocation)
    }

    func expectToken(
        for name: String,
        _ scopes: Set<String>,
        by app: App,
        sourceLocation: SourceLocation = #_sourceLocation
    ) throws {
        let token = try token(for: name, scopes, by: app)
        #expect(!token.isEmpty, sourceLocation: sourceLocation)
    }

    func expectOverdue(_ count: Int, by enforcer: App, sourceLocation: SourceLocation = #_sourceLocation) throws {
        let overdue = try askOverdue(enforcer)
        #expect(overdue.count == count, sourceLocation: sourceLocation)
    }

    func expectAnswer(
        _ request: UInt64,
        _ key: String,
        _ value: DBusValue,
        sourceLocation: SourceLocation = #_sourceLocation
    ) throws {
        let fields = try answer(request)
        #expect(fields[key] == value, sourceLocation: sourceLocation)
    }

    func expectEpoch(_ epoch: UInt64, _ comment: Comment? = nil, sourceLocation: SourceLocation = #_sourceLocation) {
        #expect(state.device.epoch == epoch, comment, sourceLocation: sourceLocation)
    }

    /// Expects that the status contains these words about the login; `nil` for no problem.
    func expectLoginProblem(_ words: String?, sourceLocation: SourceLocation = #_sourceLocation) {
        let problem = loginProblem
        #expect(words.map { problem?.contains($0) == true } ?? (problem == nil), sourceLocation: sourceLocation)
    }

    /// Expects that this progress of the app's cleanup is committed.
    func expectPart(
        _ app: String,
        of session: UInt64,
        _ progress: CleanupReport.Progress,
        sourceLocation: SourceLocation = #_sourceLocation
    ) {
        #expect(disk.part(app, of: session)?.progress == progress, sourceLocation: sourceLocation)
    }
}
