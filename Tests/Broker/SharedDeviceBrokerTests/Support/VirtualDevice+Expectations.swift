import DBusTransport
import Identity
import SharedDevice
import SharedDeviceSimulation
import Testing

@testable import SharedDeviceBroker

/// What most tests of the broker's rules expect.
///
/// These are functions, because a use of `#expect` takes ten times as long to compile as a call.
extension VirtualDevice {
    func expectSignedIn(_ comment: Comment? = nil, sourceLocation: SourceLocation = #_sourceLocation) {
        #expect(state.device.account != nil, comment, sourceLocation: sourceLocation)
    }

    func expectSignedOut(_ comment: Comment? = nil, sourceLocation: SourceLocation = #_sourceLocation) {
        #expect(state.device.account == nil, comment, sourceLocation: sourceLocation)
    }

    /// Expects that nobody is signed in, and that a start would find nobody.
    func expectSignedOutOnDisk(sourceLocation: SourceLocation = #_sourceLocation) {
        #expect(
            state.device.account == nil && disk.device.account == nil,
            sourceLocation: sourceLocation
        )
    }

    /// Expects that this person is signed in; `nil` for nobody.
    ///
    /// - Parameter causes: why each session so far has ended, in their order.
    func expectPerson(
        _ name: String?,
        signedOutBy causes: [String]? = nil,
        _ comment: Comment? = nil,
        sourceLocation: SourceLocation = #_sourceLocation
    ) {
        #expect(person == name, comment, sourceLocation: sourceLocation)
        if let causes { #expect(signOutCauses == causes, comment, sourceLocation: sourceLocation) }
    }

    /// Expects that the request has no answer yet.
    func expectUnanswered(
        _ request: UInt64,
        _ comment: Comment? = nil,
        sourceLocation: SourceLocation = #_sourceLocation
    ) {
        #expect(replies[request] == nil, comment, sourceLocation: sourceLocation)
    }

    /// Expects that the request was refused in this way.
    func expectRefused(
        _ request: UInt64,
        _ expected: Refusal,
        _ comment: Comment? = nil,
        sourceLocation: SourceLocation = #_sourceLocation
    ) {
        #expect(refusal(request) == expected, comment, sourceLocation: sourceLocation)
    }

    /// Expects that the request was refused with this code, whatever the text is.
    func expectRefused(
        _ request: UInt64,
        code: SharedDeviceError.Code,
        _ comment: Comment? = nil,
        sourceLocation: SourceLocation = #_sourceLocation
    ) {
        #expect(refusal(request)?.code == code, comment, sourceLocation: sourceLocation)
    }

    /// Expects that the app owes the cleanup of these sessions.
    func expectOwed(
        _ sessions: [UInt64],
        by app: App,
        _ comment: Comment? = nil,
        sourceLocation: SourceLocation = #_sourceLocation
    ) throws {
        let owed = try owed(by: app)
        #expect(owed == sessions, comment, sourceLocation: sourceLocation)
    }

    /// Expects that the app learns that this person is signed in; `nil` for nobody.
    func expectAccount(
        _ name: String?,
        for app: App,
        _ comment: Comment? = nil,
        sourceLocation: SourceLocation = #_sourceLocation
    ) throws {
        let account = try session(for: app).session.account
        #expect(account?.username == name, comment, sourceLocation: sourceLocation)
    }

    /// Expects that so many passwords were looked at so far.
    func expectPasswordChecks(
        _ count: Int,
        _ comment: Comment? = nil,
        sourceLocation: SourceLocation = #_sourceLocation
    ) {
        #expect(passwordChecks == count, comment, sourceLocation: sourceLocation)
    }

    /// Expects that so many changes were announced so far.
    func expectAnnouncements(_ count: Int, _ comment: Comment? = nil, sourceLocation: SourceLocation = #_sourceLocation)
    {
        #expect(announcements == count, comment, sourceLocation: sourceLocation)
    }

    /// Expects that logind was asked to end these login sessions, request by request.
    func expectEndedLogins(_ sessions: [[String]], sourceLocation: SourceLocation = #_sourceLocation) {
        #expect(endedLogins == sessions, sourceLocation: sourceLocation)
    }

    /// Expects that the organisation's provider was asked for so many renewals so far.
    func expectRenewals(_ count: Int, sourceLocation: SourceLocation = #_sourceLocation) {
        #expect(provider.renewals.count == count, sourceLocation: sourceLocation)
    }

    /// Expects that the organisation's provider was told so many ends of sessions so far.
    func expectEnds(_ count: Int, sourceLocation: SourceLocation = #_sourceLocation) {
        #expect(provider.ends.count == count, sourceLocation: sourceLocation)
    }

    /// Expects that the organisation's provider was told the ends of these persons' sessions.
    func expectEnds(of persons: [String], sourceLocation: SourceLocation = #_sourceLocation) {
        #expect(provider.ends.map(\.person.subject) == persons, sourceLocation: sourceLocation)
    }

    /// Expects that the person has to sign in again, in the session that goes on.
    func expectPersonWanted(sourceLocation: SourceLocation = #_sourceLocation) {
        #expect(
            state.provider.needsPerson && state.device.account != nil,
            sourceLocation: sourceLocation
        )
    }

    /// Expects that the app gets a token of the person's for these scopes.
    func expectToken(
        for name: String,
        _ scopes: Set<String>,
        by app: App,
        sourceLocation: SourceLocation = #_sourceLocation
    ) throws {
        let token = try token(for: name, scopes, by: app)
        #expect(!token.isEmpty, sourceLocation: sourceLocation)
    }

    /// Expects that the enforcer is handed so many apps.
    func expectOverdue(_ count: Int, by enforcer: App, sourceLocation: SourceLocation = #_sourceLocation) throws {
        let overdue = try askOverdue(enforcer)
        #expect(overdue.count == count, sourceLocation: sourceLocation)
    }

    /// Expects that the answer to the request has this value.
    func expectAnswer(
        _ request: UInt64,
        _ key: String,
        _ value: DBusValue,
        sourceLocation: SourceLocation = #_sourceLocation
    ) throws {
        let fields = try answer(request)
        #expect(fields[key] == value, sourceLocation: sourceLocation)
    }

    /// Expects that the session, or the time between two, has this number.
    func expectEpoch(_ epoch: UInt64, _ comment: Comment? = nil, sourceLocation: SourceLocation = #_sourceLocation) {
        #expect(state.device.epoch == epoch, comment, sourceLocation: sourceLocation)
    }

    /// Expects that the status says this of the login; `nil` where it says nothing.
    func expectLoginProblem(_ words: String?, sourceLocation: SourceLocation = #_sourceLocation) {
        let problem = loginProblem
        #expect(words.map { problem?.contains($0) == true } ?? (problem == nil), sourceLocation: sourceLocation)
    }

    /// Expects that the disk has it how far the app is with the cleanup of the session.
    func expectPart(
        _ app: String,
        of session: UInt64,
        _ progress: CleanupReport.Progress,
        sourceLocation: SourceLocation = #_sourceLocation
    ) {
        #expect(disk.part(app, of: session)?.progress == progress, sourceLocation: sourceLocation)
    }
}
