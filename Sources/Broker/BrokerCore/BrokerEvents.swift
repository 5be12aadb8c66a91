import Basics
package import DeviceConfiguration
package import FoundationEssentials
package import Identity
package import Logging
@_spi(Extensions) package import SharedDevice

// The events and effects of the broker: the input and output of ``BrokerState/reduce(_:at:)``.

/// A program that is connected to the broker's bus and has called the broker.
package struct Caller: Sendable, Equatable {
    /// The connection's name, unique among the connections of all buses, including buses that have ended.
    package let connection: String
    /// The caller's credentials, as reported by the bus and the kernel. They tell apps apart.
    package let credentials: AppCredentials
    /// The process, for the log.
    package let process: UInt32?
    /// Whether the caller has the rights of the device's administrators.
    package let isAdministrator: Bool

    package init(connection: String, credentials: AppCredentials, process: UInt32?, isAdministrator: Bool) {
        (self.connection, self.credentials) = (connection, credentials)
        (self.process, self.isAdministrator) = (process, isAdministrator)
    }

    package var user: UInt32 { credentials.user }

    /// The program, for the log. A path may contain anything, even line breaks.
    package var program: String {
        let process = process.map { "pid \($0)" } ?? "pid unknown"
        return "\(credentials.executable.printable(500)), \(process), uid \(user)"
    }
}

package struct Request: Sendable {
    package enum Call: Sendable {
        case deviceInformation
        case currentAccount
        case signIn(SignInRequest, scopes: Set<String>, patience: Duration, label: String?)
        case beginSignIn(PromptWish)
        case completeSignIn(name: String, PromptAnswer)
        case awaitSignIn(name: String, patience: Duration)
        /// `label` is the label of a `signIn`, or the name of a prompted sign-in.
        case cancelSignIn(label: String)
        /// `maximumAge` is how long ago the person may have authenticated; `nil` for any time.
        case acquireToken(
            identifier: String,
            scopes: Set<String>,
            refresh: Bool,
            session: UInt64?,
            maximumAge: Duration? = nil
        )
        case signOut(identifier: String, session: UInt64?)
        /// `took` is the time since the cleanup began, if the report says so.
        case report(CleanupReport.Progress, session: UInt64, mark: UInt64 = 0, took: Duration? = nil, detail: String?)
        /// `isAdministration` is true if the caller administers the device and does not take part as an app.
        case round(
            session: UInt64?,
            after: UInt64?,
            awaitsEnd: Bool,
            patience: Duration,
            isAdministration: Bool = false
        )
        case activity
        /// `shows` is what is on the screen now. The response comes as soon as its revision differs from `known`.
        case screen(shows: ScreenContent, known: UInt64?, patience: Duration)
        case providerEvents([ProviderEvent])
        case join(SignInRequest)
        case leave(SignInRequest)
        /// If `session` is given, only that session is ended: the caller may have seen an earlier one.
        case signOutAnyone(identifier: String?, session: UInt64? = nil, reason: String)
        /// Without a user, the app of every user; without a session, every session whose cleanup the app owes.
        case waive(app: String, user: UInt32?, session: UInt64?, reason: String)
        /// Another process has removed the account's user from the directory.
        case forgetAccount(identifier: String)
        case runningApps
        /// `underWay` lists the apps that the caller is already stopping and deleting.
        case overdue(underWay: Set<Participant> = [], patience: Duration)
        /// `problem` is why the cleanup failed; `nil` if it succeeded.
        case enforced(app: String, user: UInt32, sessions: Set<UInt64>, detail: String?, problem: String?)
        /// The device's status, as soon as its revision differs from `known`.
        case status(known: UInt64?, patience: Duration)
        /// The first log entries after `after`, as soon as there are any. Without a number, the newest entries.
        case log(after: Int64?, limit: Int, patience: Duration)

        package var isSignOut: Bool {
            switch self {
            case .signOut, .signOutAnyone: true
            default: false
            }
        }
    }

    package struct PromptWish: Sendable {
        /// The methods that the prompt supports, best first; empty means all.
        package var methods: [BrokerProtocol.SignInMethod] = []
        /// The address to which the provider's page redirects the browser.
        package var redirect: String?
        package var loginHint: String?
        /// The scopes of the first access token.
        package var scopes: Set<String> = []
        /// How long the request may wait for earlier cleanups.
        package var patience = Duration.zero
        /// Whether a person who is signed in has to authenticate again.
        package var asksAgain = false
        /// The app that has started the prompt, if the prompt knows it. It must be an app for the person.
        package var app: String?
        /// The claims that the provider has to meet, as JSON (OpenID Connect Core 1.0, section 5.5).
        package var claims: String?

        package init() {}
    }

    /// The person's input at a prompt.
    package enum PromptAnswer: Sendable {
        /// The password, or a badge and its PIN.
        case password(SignInRequest)
        /// The part of the browser's redirect after the `?`.
        case query(String)
    }

    /// Identifies the request in ``Effect/reply(_:_:)``.
    package let number: UInt64
    package let connection: String
    /// The app that the caller claims to be.
    package let claimed: String?
    package let call: Call
    package let method: String
    /// Whether polkit may ask the person for a password before the response.
    package let isInteractive: Bool
    /// When the request arrived, or when polkit permitted it. The caller's patience counts from then on.
    package internal(set) var askedAt = Duration.zero

    package init(
        number: UInt64,
        connection: String,
        claimed: String?,
        call: Call,
        method: String,
        isInteractive: Bool = false
    ) {
        (self.number, self.connection, self.claimed) = (number, connection, claimed)
        (self.call, self.method, self.isInteractive) = (call, method, isInteractive)
    }
}

package enum Event: Sendable {
    /// A program has called for the first time. This precedes its first request.
    case arrived(Caller)
    /// A connection has left the bus, or the bus was lost with all connections. No other such event has the same mark
    /// (``CleanupLedger/Part/mark``).
    case left(String, mark: UInt64)
    case busLost(mark: UInt64)
    /// The broker has its name on the bus, for the first time or again.
    case busRestored
    case request(Request)
    /// A request was malformed, and was already refused.
    case malformed(connection: String, method: String, Refusal)
    /// The identity provider has responded to the request with this number.
    case authenticated(UInt64, Result<AuthenticatedIdentity, IdentityError>)
    case issued(UInt64, Result<AccessToken, IdentityError>)
    case committed(UInt64)
    /// The batch could not be committed, for this reason.
    case commitFailed(Batch, String)
    case configured(DevicePolicy)
    case manifests([AppManifest], problems: [String] = [], unknown: [String] = [])
    case serviceStarted(app: String, ServiceStart)
    /// polkit has decided on the request with this number.
    case authorised(UInt64, Bool)
    case operatorsFound(names: [String], users: Set<UInt32>)
    /// The log was read for the request with this number, or could not be read.
    case logRead(UInt64, Result<[AuditLine], Refusal>)
    /// The screen was locked, the person has logged out, or the machine is being shut down.
    case login(LoginEvent)
    /// The logins at the seat have changed; `nil` while logind does not respond.
    case seat(Seat?)
    /// logind was asked to end login sessions. The second value is its error; `nil` if it has accepted the request.
    case loginsEnded([String], String?)
    /// The organisation's provider has returned a page for this prompted sign-in, or an error.
    case signInBegan(String, Result<BegunSignIn, IdentityError>)
    /// The result of the organisation's provider for this prompted sign-in; `nil` means that the person has not
    /// finished.
    case signedIn(String, Result<ProviderSignIn?, IdentityError>)
    case renewed(UInt64, RenewalOutcome)
    /// The provider was told of the end with this number, or the attempt failed.
    case sessionEndTold(UInt64, IdentityError?)
    /// The problems with the keys of tokens and records, one sentence each.
    case keys([String])
    /// Whether a user of the device's own directory can sign in with a badge.
    case badges(Bool)
    /// The certificates whose end would stop a function of the device.
    case certificates([DeviceCertificate])
    /// The time of ``BrokerState/nextDeadline`` has come, the clock was set, or the machine has slept.
    case time
    /// The broker is about to end, and everything has to be committed.
    case ending
}

/// An action at the device, as reported by logind.
package enum LoginEvent: Sendable, Equatable {
    /// The screen of this login session was locked.
    case locked(LoginName)
    case ended
    case shutdown
    case shutdownCancelled

    /// The reason of a sign-out, as written to the log.
    var cause: String {
        switch self {
        case .locked: "screen lock"
        case .ended: "logout"
        case .shutdown: "shutdown"
        case .shutdownCancelled: "shutdown cancelled"
        }
    }
}

/// The result of asking the bus to start an app.
package enum ServiceStart: Sendable, Equatable {
    case started
    case running
    case failed(String)
    case noBus
}

/// An action that the broker's state requests. Only ``noteState(_:)`` may wait for the disk.
package enum Effect: Sendable {
    case reply(UInt64, Result<Response, Refusal>)
    /// Stores a state without an account at once, for a broker that starts before the state is committed.
    case noteState(DeviceState)
    /// Signals all apps to ask for the state.
    case announce(modeChanged: Bool)
    /// Writes to the disk. Followed by ``Event/committed(_:)`` or ``Event/commitFailed(_:_:)``.
    case commit(Batch)
    /// Followed by ``Event/authenticated(_:_:)``.
    case authenticate(UInt64, SignInRequest)
    /// Followed by ``Event/issued(_:_:)``.
    case issueToken(UInt64, Account, scopes: Set<String>)
    /// Followed by ``Event/signInBegan(_:_:)``.
    case beginSignIn(String, SignInStart)
    /// Followed by ``Event/signedIn(_:_:)``.
    case completeSignIn(String, String, query: String)
    /// Followed by ``Event/signedIn(_:_:)``.
    case pollSignIn(String, String)
    /// Cancels the provider's sign-in with this handle.
    case cancelSignIn(String)
    /// Followed by ``Event/renewed(_:_:)``.
    case renew(UInt64, ProviderRecord, scopes: Set<String>, mayBeUsed: Bool)
    /// Followed by ``Event/sessionEndTold(_:_:)``.
    case tellSessionEnd(UInt64, ProviderRecord, keepsSession: Bool)
    /// Followed by ``Event/serviceStarted(app:_:)``.
    case startService(app: String, busName: String)
    /// Asks logind to end these sessions. Followed by ``Event/loginsEnded(_:_:)``.
    case endLogins([String])
    /// Releases the delay of the machine's shutdown.
    case allowShutdown
    /// Asks polkit. Followed by ``Event/authorised(_:_:)``.
    case authorise(UInt64, connection: String, Administration.Right, isInteractive: Bool)
    /// Looks up the operators' names. Followed by ``Event/operatorsFound(names:users:)``.
    case findOperators([String])
    /// Reads the log. Followed by ``Event/logRead(_:_:)``.
    case readLog(UInt64, AuditFilter)
    case keepActivity(Date)
    case journal(AuditEntry)
    /// Logs a line for the administrator.
    case note(Logger.Level, String, [String: String])
}

/// What the store has of an earlier run.
package struct StoredContent: Sendable {
    package var device = DeviceState.initial
    package var membership: Membership?
    package var ledger = CleanupLedger()
    /// The last valid managed configuration, as JSON; `nil` if there was none.
    package var configuration: Data?
    /// The content of the last valid app manifests, by file name.
    package var manifests: [String: Data] = [:]
    /// A noted state without an account that is newer than the database; `nil` if there is none.
    package var noted: (state: DeviceState, date: Date)?
    /// The provider's record of the open session.
    package var provider: ProviderSession?
    /// Events that the provider has not been told yet.
    package var outbox: [UInt64: ProviderOutbox.Entry] = [:]
    /// The provider's latest statement about this device.
    package var compliance: ComplianceWord?
    /// Why records of the provider could not be opened, for the log.
    package var recordProblems: [String] = []

    /// The content for a device that was never used.
    package init() {}
}

/// The rows to write in one transaction, by their keys.
package struct Batch: Sendable {
    /// Identifies the batch in ``Event/committed(_:)``.
    package var number: UInt64
    package var device: DeviceState?
    /// `.some(nil)` removes the row.
    package var membership: Membership??
    package var sessions: [UInt64: CleanupLedger.Session?] = [:]
    package var parts: [UInt64: [Participant: CleanupLedger.Part?]] = [:]
    package var claims: [Participant: CleanupLedger.Claim?] = [:]
    /// `.some(nil)` removes the row.
    package var provider: ProviderSession??
    /// The device's state that the provider's row belongs to.
    package var providerOwner: DeviceState?
    /// The pending ends of sessions that the provider has to be told, by number; `nil` removes an entry.
    package var outbox: [UInt64: ProviderOutbox.Entry?] = [:]
    /// The provider's last report on the compliance of this device; `nil` if there is no change.
    package var compliance: ComplianceWord?
    package var log: [AuditEntry] = []
    /// Whether a name is removed from the rows, so that its bytes also have to be erased from the file.
    package var erases = false

    package init(number: UInt64) { self.number = number }

    /// Adds the unsaved rows of the ledger.
    package mutating func add(_ ledger: inout CleanupLedger) {
        for row in ledger.unsaved.offer() {
            switch row {
            case .session(let number): sessions[number] = .some(ledger.sessions[number])
            case .part(let number, let participant):
                parts[number, default: [:]][participant] = .some(ledger.parts[number]?[participant])
            case .claim(let participant): claims[participant] = .some(ledger.claims[participant])
            }
        }
    }
}

package struct DevicePolicy: Sendable, Equatable {
    package var mode: ManagedMode = .personal
    package var organization: String?
    /// Why the present file is not in force; `nil` if it is in force.
    package var problem: String?
    /// Whether there was ever a valid configuration. Without one, sign-in is not possible.
    package var isConfigured = true
    /// Whether the configuration before the start locked sessions.
    package var lockedBefore = false
    /// The source of people's identities.
    package var identity = IdentitySource.embedded
    /// The organisation's provider. Set if and only if ``identity`` is `oidc`.
    package var organisation: OrganisationSettings?
    /// Whether apps may send passwords with `SignIn`. Prompts always may.
    package var passwordSignIn = false
    /// Whether a sign-out ends the login session at the seat.
    package var endsLoginSession = false
    package var requiresJoin = false
    /// The tenant whose users may sign in on a device that is not joined; `nil` means any tenant.
    package var tenantIdentifier: String?
    /// The people who may sign in; `nil` means all.
    package var allowedUsers: AllowedUsers?
    package var cleanup = CleanupPolicy()
    /// When a session ends by itself.
    package var schedule = SignOutSchedule.Settings()
    package var endsAtScreenLock = false
    package var endsAtLogout = false
    /// The provider's end-session page, with the configured query (OpenID Connect RP-Initiated Logout 1.0, section 2).
    package var endSessionURL: String?
    package var lists = AppLists()
    /// Whether only apps with a manifest take part.
    package var requiresEnrolment = false
    /// The operators, as the system knew them when the configuration was read.
    package var operators: Set<UInt32> = []
    /// The names in the configuration from which ``operators`` was looked up.
    package var operatorNames: [String] = []

    package init() {}

    /// Whether the broker needs to know who is logged in at the seat.
    package var followsSeat: Bool { identity == .loginSession || endsLoginSession }
}

extension DevicePolicy {
    /// - Parameters:
    ///   - content: The last valid content since the start; `nil` if there was none.
    ///   - kept: The configuration that was valid before the start. Without either of them, sign-in is not possible.
    ///   - hasManyUsers: Whether more than one user reaches the bus.
    package init(inForce content: ManagedConfigurationFile.Content?, kept: ManagedConfiguration?, hasManyUsers: Bool) {
        switch (content, kept) {
        case (.present(let configuration), _), (nil, let configuration?):
            self.init(configuration, hasManyUsers: hasManyUsers)
        case (.missing, _): self.init(ManagedConfiguration(), hasManyUsers: hasManyUsers)
        case (nil, nil):
            self.init()
            isConfigured = false
            cleanup = .strict
        }
        lockedBefore = kept?.locksSessions == true
    }

    package init(_ configuration: ManagedConfiguration, hasManyUsers: Bool) {
        mode = configuration.mode
        organization = configuration.organization
        identity = configuration.identity
        organisation = configuration.organisation
        passwordSignIn = configuration.identity == .embedded && configuration.passwordSignIn ?? false
        endsLoginSession = configuration.endsLoginSession
        requiresJoin = configuration.requiresJoin
        tenantIdentifier = configuration.tenantIdentifier
        allowedUsers = configuration.allowedUsers
        cleanup = configuration.cleanup
        schedule.inactivity = configuration.inactivityTimeout?.duration
        schedule.locked = configuration.locksSessions ? configuration.lockedTime.duration : nil
        schedule.shiftEnds = Set(configuration.shiftEnds.map(\.minutes))
        schedule.longest = configuration.longestSession?.duration
        schedule.warning = configuration.signOutWarning.duration
        endsAtScreenLock = configuration.signOutOnScreenLock
        endsAtLogout = configuration.signOutOnLogout
        endSessionURL = configuration.endSessionURL?.text
        lists = configuration.appLists
        (operators, operatorNames) = (configuration.operators.users, configuration.operators.names)
        requiresEnrolment = configuration.requiresEnrolment ?? (configuration.cleanup.isStrict || hasManyUsers)
    }
}
