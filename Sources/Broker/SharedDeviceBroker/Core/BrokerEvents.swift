package import DeviceConfiguration
package import DeviceStorage
package import FoundationEssentials
package import Identity
package import Logging
package import SharedDevice

// What happens to the broker, and what it does about it: the values that go into the reducer and come out of it.

/// A program that is connected to the broker's bus and has called the broker.
package struct Caller: Sendable, Equatable {
    /// Names the connection among those of all buses, also of a bus that has ended.
    package let connection: String
    /// What tells apps apart, by the word of bus and kernel.
    package let credentials: AppCredentials
    /// Its process, for the log.
    package let process: UInt32?
    /// Whether it may do what the device's administrators may.
    package let isAdministrator: Bool

    package init(connection: String, credentials: AppCredentials, process: UInt32?, isAdministrator: Bool) {
        self.connection = connection
        self.credentials = credentials
        self.process = process
        self.isAdministrator = isAdministrator
    }

    package var user: UInt32 { credentials.user }

    /// For the log. A path may contain anything, line breaks among it.
    package var program: String {
        let process = process.map { "pid \($0)" } ?? "pid unknown"
        return "\(credentials.executable.forLog(500)), \(process), uid \(user)"
    }
}

/// A call of a method.
package struct Request: Sendable {
    package enum Call: Sendable {
        case deviceInformation
        case currentAccount
        case signIn(Credentials, scopes: Set<String>, patience: Duration, label: String?)
        case beginSignIn(PromptWish)
        case completeSignIn(name: String, PromptAnswer)
        case awaitSignIn(name: String, patience: Duration)
        /// `label`: the one of a `signIn`, or the name of a prompt's sign-in.
        case cancelSignIn(label: String)
        case acquireToken(identifier: String, scopes: Set<String>, refresh: Bool, session: UInt64?)
        case signOut(identifier: String, session: UInt64?)
        case report(CleanupReport.Progress, session: UInt64, mark: UInt64 = 0, detail: String?)
        /// `isAdministration`: for one who administers the device and takes part as no app.
        case round(
            session: UInt64?,
            after: UInt64?,
            awaitsEnd: Bool,
            patience: Duration,
            isAdministration: Bool = false
        )
        case activity
        case providerEvents([ProviderEvent])
        case join(Credentials)
        case leave(Credentials)
        /// Of this session alone, where one is named: whoever asks may have seen the one before.
        case signOutAnyone(identifier: String?, session: UInt64? = nil, reason: String)
        case waive(app: String, user: UInt32?, session: UInt64?, reason: String)
        /// Another process has removed the account's user from the directory.
        case forgetAccount(identifier: String)
        case runningApps
        /// `underWay` is what the caller stops and deletes already.
        case overdue(underWay: Set<Participant> = [], patience: Duration)
        /// `problem` is why it was not done; `nil` if it was.
        case enforced(app: String, user: UInt32, sessions: Set<UInt64>, detail: String?, problem: String?)
        /// The device, as soon as its revision is not this one.
        case status(known: UInt64?, patience: Duration)
        /// The first entries of the log after this one, as soon as there are some; without a number, the newest.
        case log(after: Int64?, limit: Int, patience: Duration)

        package var isSignOut: Bool {
            switch self {
            case .signOut, .signOutAnyone: true
            default: false
            }
        }
    }

    /// What a person gives to sign in.
    package typealias Credentials = SignInRequest

    /// What a prompt asks for at the beginning of a sign-in.
    package struct PromptWish: Sendable {
        /// What the prompt can show, best first; empty: anything.
        package var methods: [BrokerProtocol.SignInMethod] = []
        /// Where the browser comes back to, for a page of the organisation's provider.
        package var redirect: String?
        /// The name that the page may suggest.
        package var loginHint: String?
        /// What the first access token is to permit.
        package var scopes: Set<String> = []
        /// How long the cleanups of before may take.
        package var patience = Duration.zero

        package init() {}
    }

    /// What the person has given to a prompt.
    package enum PromptAnswer: Sendable {
        case password(Credentials)
        /// What the browser came back with after the `?`.
        case query(String)
    }

    /// Names the request to whoever answers it.
    package let number: UInt64
    /// The connection that asks.
    package let connection: String
    /// Which app the caller says it is.
    package let claimed: String?
    package let call: Call
    /// The method's name, for the log.
    package let method: String
    /// Whether the person may be asked for a password before the answer, by polkit.
    package let isInteractive: Bool
    /// When the caller had all that it takes to ask: its patience counts from then on.
    package internal(set) var askedAt = Duration.zero

    package init(
        number: UInt64,
        connection: String,
        claimed: String?,
        call: Call,
        method: String,
        isInteractive: Bool = false
    ) {
        self.isInteractive = isInteractive
        self.number = number
        self.connection = connection
        self.claimed = claimed
        self.call = call
        self.method = method
    }
}

/// What happens.
package enum Event: Sendable {
    /// A program has called for the first time. It comes before its first request.
    case arrived(Caller)
    /// A connection has left the bus, or the bus is gone with all of them. No other such event has this mark (``CleanupLedger/Part/mark``).
    case left(String, mark: UInt64)
    case busLost(mark: UInt64)
    /// The broker has its name on the bus, for the first time or again.
    case busRestored
    case request(Request)
    /// A request has a wrong form, and was answered so already.
    case malformed(connection: String, method: String, Refusal)
    /// The identity provider has answered.
    case authenticated(UInt64, Result<AuthenticatedIdentity, IdentityError>)
    case issued(UInt64, Result<AccessToken, IdentityError>)
    /// A batch is on the disk.
    case committed(UInt64)
    /// A batch is not on the disk, for this reason.
    case commitFailed(Batch, String)
    /// A managed configuration is in force.
    case configured(DevicePolicy)
    /// These manifests are in force.
    case manifests([AppManifest], problems: [String] = [], unknown: [String] = [])
    /// The bus was asked to start an app.
    case serviceStarted(app: String, ServiceStart)
    /// polkit has said whether the caller of this request may have what it asks for.
    case authorised(UInt64, Bool)
    /// Which users the operators' names stand for now.
    case operatorsFound(names: [String], users: Set<UInt32>)
    /// The log was read for this request, or could not be.
    case logRead(UInt64, Result<[AuditLog.Line], StoreError>)
    /// The screen was locked, or the person has logged out.
    case login(LoginEvent)
    /// Who is logged in at the seat; `nil` while logind does not answer.
    case seat(Seat?)
    /// logind was asked to end login sessions; `nil`: it has taken the request.
    case loginsEnded([String], String?)
    /// The organisation's provider has a page for this prompt's sign-in, or not.
    case signInBegan(String, Result<BegunSignIn, IdentityError>)
    /// What the organisation's provider says of this prompt's sign-in; `nil`: the person has not finished.
    case signedIn(String, Result<ProviderSignIn?, IdentityError>)
    case renewed(UInt64, RenewalOutcome)
    /// The provider was told of the end with this number, or not.
    case sessionEndTold(UInt64, IdentityError?)
    /// What is wrong with the keys of tokens and records, a sentence each.
    case keys([String])
    /// The time that ``BrokerState/nextDeadline`` named has come, the clock was set, or the machine has slept.
    case time
    /// The broker is about to end: everything is to be on the disk.
    case ending
}

/// What the person at the device has done, by logind's word.
package enum LoginEvent: Sendable, Equatable {
    /// This session's screen.
    case locked(LoginName)
    case ended
    /// The machine is about to be shut down.
    case shutdown
    /// It is not any more.
    case shutdownCancelled

    /// The reason of a sign-out, as the log has it.
    var cause: String {
        switch self {
        case .locked: "screen lock"
        case .ended: "logout"
        case .shutdown: "shutdown"
        case .shutdownCancelled: "shutdown cancelled"
        }
    }
}

/// What came of asking the bus to start an app.
package enum ServiceStart: Sendable, Equatable {
    case started
    case running
    case failed(String)
    /// The bus is lost.
    case noBus
}

/// What the broker does. Whoever carries effects out does so in their order. Only ``noteState(_:)`` may wait for the disk.
package enum Effect: Sendable {
    case reply(UInt64, Result<BrokerProtocol.Fields, Refusal>)
    /// Notes a state without an account, for a broker that starts before the state is on the disk.
    case noteState(DeviceState)
    /// Tells all apps to ask.
    case announce(modeChanged: Bool)
    /// Writes to the disk; answers with ``Event/committed(_:)`` or ``Event/commitFailed(_:_:)``.
    case commit(Batch)
    /// Answers with ``Event/authenticated(_:_:)``.
    case authenticate(UInt64, Request.Credentials)
    /// Answers with ``Event/issued(_:_:)``.
    case issueToken(UInt64, Account, scopes: Set<String>)
    /// Answers with ``Event/signInBegan(_:_:)``.
    case beginSignIn(String, SignInStart)
    /// Answers with ``Event/signedIn(_:_:)``.
    case completeSignIn(String, String, query: String)
    /// Answers with ``Event/signedIn(_:_:)``.
    case pollSignIn(String, String)
    /// Nobody waits for the sign-in of this handle any more.
    case cancelSignIn(String)
    /// Answers with ``Event/renewed(_:_:)``.
    case renew(UInt64, ProviderRecord, scopes: Set<String>, mayBeUsed: Bool)
    /// Answers with ``Event/sessionEndTold(_:_:)``.
    case tellSessionEnd(UInt64, ProviderRecord, keepsSession: Bool)
    /// Answers with ``Event/serviceStarted(app:_:)``.
    case startService(app: String, busName: String)
    /// Has logind end these sessions; answers with ``Event/loginsEnded(_:_:)``.
    case endLogins([String])
    /// Nothing is left that the machine's shutdown has to wait for.
    case allowShutdown
    /// Asks polkit; answers with ``Event/authorised(_:_:)``.
    case authorise(UInt64, connection: String, BrokerState.Right, isInteractive: Bool)
    /// Looks the operators' names up; answers with ``Event/operatorsFound(names:users:)``.
    case findOperators([String])
    /// Reads the log; answers with ``Event/logRead(_:_:)``.
    case readLog(UInt64, AuditLog.Filter)
    /// Somebody used the device at this time.
    case keepActivity(Date)
    /// An entry of the audit log, for the journal.
    case journal(AuditEntry)
    /// A line for the administrator.
    case note(Logger.Level, String, [String: String])
}

/// What goes to the disk in one transaction: rows as they are to be, by their keys.
package struct Batch: Sendable {
    /// Names the batch in the answer.
    package var number: UInt64
    package var device: DeviceState?
    /// `.some(nil)` removes the row.
    package var membership: Membership??
    package var sessions: [UInt64: CleanupLedger.Session?] = [:]
    package var parts: [UInt64: [Participant: CleanupLedger.Part?]] = [:]
    package var claims: [Participant: CleanupLedger.Claim?] = [:]
    /// `.some(nil)` removes the row.
    package var provider: ProviderSession??
    /// The state that the row is of.
    package var providerOwner: DeviceState?
    /// Ends that the provider is to be told, by their numbers; `nil` removes one.
    package var outbox: [UInt64: ProviderOutbox.Entry?] = [:]
    /// What the provider said last of this device; `nil` where the disk has it.
    package var compliance: ComplianceWord?
    package var log: [AuditEntry] = []
    /// Whether a name leaves the rows, so that its bytes have to leave the file.
    package var erases = false

    package init(number: UInt64) { self.number = number }

    /// The ledger's keys of it.
    package var changes: CleanupLedger.Changes {
        CleanupLedger.Changes(
            sessions: Set(sessions.keys),
            parts: parts.mapValues { Set($0.keys) },
            claims: Set(claims.keys)
        )
    }
}

/// What the managed configuration says of the broker's decisions.
package struct DevicePolicy: Sendable, Equatable {
    package var mode: ManagedMode = .personal
    package var organization: String?
    /// Why the present file is not in force; `nil` if it is.
    package var problem: String?
    /// Whether a configuration was ever valid. Without one nobody signs in.
    package var isConfigured = true
    /// Who says who people are.
    package var identity = IdentitySource.embedded
    /// The organisation's provider; there where ``identity`` is `oidc`, and only there.
    package var organisation: OrganisationSettings?
    /// Whether apps may hand over passwords with `SignIn`. Prompts may in any case.
    package var passwordSignIn = false
    /// Whether a sign-out ends the login session at the seat.
    package var endsLoginSession = false
    package var requiresJoin = false
    /// The tenant whose users may sign in on a device that is not joined; `nil` means any tenant.
    package var tenantIdentifier: String?
    package var cleanup = CleanupPolicy()
    /// When the clock ends a session.
    package var schedule = SignOutSchedule.Settings()
    /// Whether locking the screen signs out.
    package var endsAtScreenLock = false
    /// Whether the end of the login session signs out.
    package var endsAtLogout = false
    /// The identity provider's end-session page, for the browsers of those who sign out (OpenID Connect RP-Initiated Logout 1.0, section
    /// 2), with whatever query the administrator gives it.
    package var endSessionURL: String?
    package var lists = AppLists()
    /// Whether only apps with a manifest take part.
    package var requiresEnrolment = false
    /// The users who may see the device and sign out, beside its administrators, as the system knew them when the configuration was read.
    package var operators: Set<UInt32> = []
    /// The names that these users stand for.
    package var operatorNames: [String] = []

    package init() {}

    /// Whether it matters who is logged in at the seat.
    var followsSeat: Bool { identity == .loginSession || endsLoginSession }
}

extension DevicePolicy {
    /// What is in force.
    ///
    /// - Parameters:
    ///   - content: the last valid content since the start; `nil` if there was none.
    ///   - kept: the configuration that was valid before the start. With neither, nobody signs in.
    ///   - hasManyUsers: whether more than one user reaches the bus.
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
    }

    /// What the managed configuration says of it.
    ///
    /// - Parameter hasManyUsers: whether more than one user reaches the bus.
    package init(_ configuration: ManagedConfiguration, hasManyUsers: Bool) {
        mode = configuration.mode
        organization = configuration.organization
        identity = configuration.identity
        organisation = configuration.organisation
        passwordSignIn = configuration.identity == .embedded && configuration.passwordSignIn ?? false
        endsLoginSession = configuration.endsLoginSession
        requiresJoin = configuration.requiresJoin
        tenantIdentifier = configuration.tenantIdentifier
        cleanup = configuration.cleanup
        schedule.inactivity = configuration.inactivityTimeout?.duration
        schedule.shiftEnds = Set(configuration.shiftEnds.map(\.minutes))
        endsAtScreenLock = configuration.signOutOnScreenLock
        endsAtLogout = configuration.signOutOnLogout
        endSessionURL = configuration.endSessionURL?.text
        lists = configuration.appLists
        (operators, operatorNames) = (configuration.operators.users, configuration.operators.names)
        requiresEnrolment = configuration.requiresEnrolment ?? (configuration.cleanup.isStrict || hasManyUsers)
    }
}
