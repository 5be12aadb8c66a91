import DBusTransport
import FoundationEssentials
import Logging
import SharedDevice

/// The broker as apps call it over D-Bus.
struct BrokerInterface: Sendable {
    let broker: DeviceBroker
    let callers: Callers
    let life: SessionLife
    let status: ConfigurationStatus
    let log: Logger
    let refusals: RefusalLog

    init(
        broker: DeviceBroker,
        callers: Callers,
        life: SessionLife,
        status: ConfigurationStatus,
        log: Logger
    ) {
        self.broker = broker
        self.life = life
        self.callers = callers
        self.status = status
        self.log = log
        refusals = RefusalLog(broker: broker)
    }

    static let version = "0.1.0"
    /// The longest that a request may wait for something to change, in seconds.
    static let longestWait = 60.0
    /// The longest list of scopes that is taken, in bytes.
    static let longestScopes = 8192

    var interface: DBusInterface {
        DBusInterface(
            BrokerProtocol.interface,
            methods: [
                DBusInterface.Method(
                    BrokerProtocol.Method.getDeviceInformation.rawValue,
                    out: [.init("answer", "a{sv}")]
                ) { _ in [.fields(await deviceInformation())] },
                method(
                    .getCurrentAccount,
                    atOnce: { broker.standingAnswers[$0.app.identifier] },
                    answer: { _, caller in try await broker.session(for: caller.app.identifier).fields },
                    debtor: { _, caller in await broker.debt(of: caller.app.identifier)?.fields }
                ),
                method(.signIn) { try await signIn($0, caller: $1) },
                method(.cancelSignIn) { fields, _ in
                    guard let number = fields["request"]?.stringValue, number.utf8.count <= 64 else {
                        throw BrokerProtocol.Malformed("request")
                    }
                    try await broker.cancelSignIn(number)
                    return [:]
                },
                method(.acquireTokenSilently) { try await acquireToken($0, caller: $1) },
                method(.signOut) { try await signOut($0, caller: $1) },
                method(
                    .reportCleanup,
                    answer: { try await reportCleanup($0, caller: $1) },
                    debtor: { try await reportDebt($0, caller: $1) }
                ),
                method(.getRound) { fields, _ in try await round(fields) },
                method(.reportActivity) { _, _ in
                    await life.noteActivity()
                    return [:]
                },
                credentialed(.join) { try await join($0, caller: $1) },
                credentialed(.leave) { try await leave($0, caller: $1) },
                administration(.signOutAnyone) { try await signOutAnyone($0, caller: $1) },
                administration(.waive) { fields, _ in try await waive(fields) },
                administration(.getRunningApps) { _, _ in
                    [
                        "apps": .array(await broker.running.sorted().map(DBusValue.string), of: "s"),
                        "holding": .array(await broker.holding.sorted().map(DBusValue.string), of: "s"),
                    ]
                },
            ],
            properties: [
                .init("Version", "s") { .string(Self.version) },
                .init("Mode", "s") { .string(await broker.current.mode.rawValue) },
                .init("Epoch", "t") { .uint64(await broker.current.epoch) },
            ]
        )
    }

    // MARK: Methods

    private func deviceInformation() async -> BrokerProtocol.Fields {
        let state = await broker.current
        let configuration = status.current
        var fields: BrokerProtocol.Fields = [
            "mode": .string(state.mode.rawValue),
            "epoch": .uint64(state.epoch),
            "brokerVersion": .string(Self.version),
        ]
        let heldFor = await broker.signInHeldFor
        if !heldFor.isEmpty { fields["signInHeldFor"] = .array(heldFor.map(DBusValue.string), of: "s") }
        let rules = await broker.rules
        fields["joined"] = .boolean(rules.isJoined)
        fields["tenant"] = rules.tenantIdentifier.map(DBusValue.string)
        if let organization = configuration.organization { fields["organization"] = .string(organization) }
        if let problem = configuration.problem { fields["configurationProblem"] = .string(problem) }
        return fields
    }

    private func signIn(_ fields: BrokerProtocol.Fields, caller: Callers.Caller) async throws -> BrokerProtocol.Fields {
        let grant = try await broker.signIn(
            try request(fields),
            scopes: try scopes(fields),
            by: caller.app.identifier,
            patience: .seconds(try wait(fields)),
            request: fields["request"]?.stringValue,
            isAwaited: { callers.isConnected(caller) }
        )
        await life.noteActivity()
        log.notice("signed in", metadata: ["epoch": "\(grant.epoch)", "caller": "\(caller.program)"])
        return grant.fields
    }

    private func acquireToken(
        _ fields: BrokerProtocol.Fields,
        caller: Callers.Caller
    ) async throws -> BrokerProtocol.Fields {
        guard let identifier = fields["accountIdentifier"]?.stringValue else {
            throw BrokerProtocol.Malformed("accountIdentifier")
        }
        let refresh = fields["forceRefresh"]?.booleanValue ?? false
        let grant = try await broker.acquireToken(
            for: identifier,
            scopes: try scopes(fields),
            refresh: refresh,
            by: caller.app.identifier,
            session: fields["session"]?.unsignedValue
        )
        await life.noteActivity()
        return grant.fields
    }

    private func signOut(_ fields: BrokerProtocol.Fields, caller: Callers.Caller) async throws -> BrokerProtocol.Fields
    {
        guard let identifier = fields["accountIdentifier"]?.stringValue else {
            throw BrokerProtocol.Malformed("accountIdentifier")
        }
        let (state, session) = try await broker.signOut(
            identifier,
            session: fields["session"]?.unsignedValue,
            cause: caller.app.identifier
        )
        log.notice("signed out", metadata: ["epoch": "\(state.epoch)", "caller": "\(caller.program)"])
        var answer: BrokerProtocol.Fields = ["epoch": .uint64(state.epoch), "session": .uint64(session)]
        answer["endSessionURL"] = life.endSessionURL.map(DBusValue.string)
        return answer
    }

    private func reportCleanup(
        _ fields: BrokerProtocol.Fields,
        caller: Callers.Caller
    ) async throws -> BrokerProtocol.Fields {
        guard let session = fields["session"]?.unsignedValue else { throw BrokerProtocol.Malformed("session") }
        let progress = fields["progress"]?.stringValue.flatMap(CleanupReport.Progress.init)
        guard let progress, [.begun, .failed, .finished].contains(progress) else {
            throw BrokerProtocol.Malformed("progress")
        }
        // A log for people: what one app says must not fill the disk.
        let detail = fields["detail"]?.stringValue?.shortened(to: 500)
        try await broker.report(progress, of: session, by: caller.app.identifier, detail: detail)
        return [:]
    }

    /// Takes the report of an app that may no longer take part.
    private func reportDebt(
        _ fields: BrokerProtocol.Fields,
        caller: Callers.Caller
    ) async throws -> BrokerProtocol.Fields? {
        guard await broker.isOwing(caller.app.identifier) else { return nil }
        return try await reportCleanup(fields, caller: caller)
    }

    private func round(_ fields: BrokerProtocol.Fields) async throws -> BrokerProtocol.Fields {
        let deadline = ContinuousClock.now + .seconds(try wait(fields))
        let found = await broker.round(
            of: fields["session"]?.unsignedValue,
            after: fields["revision"]?.unsignedValue,
            awaitsEnd: fields["awaitsEnd"]?.booleanValue ?? false,
            until: deadline
        )
        guard let found else { return [:] }
        return ["round": found.report.fields, "revision": .uint64(found.revision)]
    }

    private func signOutAnyone(
        _ fields: BrokerProtocol.Fields,
        caller: Callers.Caller
    ) async throws -> BrokerProtocol.Fields {
        let reason = fields["reason"]?.stringValue?.shortened(to: 500) ?? "an administrator"
        let (state, session) = try await broker.signOut(fields["accountIdentifier"]?.stringValue, cause: reason)
        log.notice(
            "signed out by an administrator",
            metadata: ["epoch": "\(state.epoch)", "caller": "\(caller.program)"]
        )
        return ["epoch": .uint64(state.epoch), "session": .uint64(session)]
    }

    private func waive(_ fields: BrokerProtocol.Fields) async throws -> BrokerProtocol.Fields {
        guard let app = fields["app"]?.stringValue else { throw BrokerProtocol.Malformed("app") }
        guard let reason = fields["reason"]?.stringValue, !reason.isEmpty else {
            throw BrokerProtocol.Malformed("reason")
        }
        let sessions = try await broker.waive(
            app,
            session: fields["session"]?.unsignedValue,
            reason: reason.shortened(to: 500)
        )
        return ["sessions": .array(sessions.map(DBusValue.uint64), of: "t")]
    }

    private func scopes(_ fields: BrokerProtocol.Fields) throws(BrokerProtocol.Malformed) -> Set<String> {
        guard let value = fields["scopes"] else { return [] }
        // Tokens are kept by their scopes: those must not fill the memory.
        guard let scopes = value.stringsValue, scopes.reduce(0, { $0 + $1.utf8.count + 1 }) <= Self.longestScopes else {
            throw BrokerProtocol.Malformed("scopes")
        }
        return Set(scopes)
    }

    /// How long the caller is ready to wait, in seconds.
    private func wait(_ fields: BrokerProtocol.Fields) throws(BrokerProtocol.Malformed) -> Double {
        guard let value = fields["wait"] else { return 0 }
        guard case .double(let seconds) = value, seconds >= 0 else { throw BrokerProtocol.Malformed("wait") }
        return min(seconds, Self.longestWait)
    }

    // MARK: Form

    private typealias Answer =
        @Sendable (BrokerProtocol.Fields, Callers.Caller) async throws -> BrokerProtocol.Fields

    /// An answer to an app that may not take part; `nil` refuses the call.
    private typealias DebtorAnswer =
        @Sendable (BrokerProtocol.Fields, Callers.Caller) async throws -> BrokerProtocol.Fields?

    /// A method for every app that may take part.
    ///
    /// - Parameters:
    ///   - atOnce: finds an answer without waiting, for a caller that is known already.
    ///   - debtor: answers an app that may no longer take part and still owes a cleanup: without an answer it could never settle it.
    private func method(
        _ method: BrokerProtocol.Method,
        atOnce: (@Sendable (Callers.Caller) -> DBusValue?)? = nil,
        answer: @escaping Answer,
        debtor: @escaping DebtorAnswer = { _, _ in nil }
    ) -> DBusInterface.Method {
        DBusInterface.Method(
            method.rawValue,
            in: [.init("request", "a{sv}")],
            out: [.init("answer", "a{sv}")],
            atOnce: atOnce.map(standing)
        ) { call in
            let fields = call.arguments.first?.fieldsValue ?? [:]
            let claimed = fields["application"]?.stringValue
            var app = "\(claimed?.forLog(200) ?? "an app without a name") (not eligible)"
            do {
                let caller: Callers.Caller
                do {
                    caller = try await callers.caller(call.sender, claiming: claimed)
                } catch let refusal as DeviceRefusal where refusal.code == .appNotEligible {
                    guard let former = try await callers.refused(call.sender, claiming: claimed),
                        let answer = try await debtor(fields, former)
                    else { throw refusal }
                    return [.fields(answer)]
                }
                app = caller.app.identifier
                return [.fields(try await answer(fields, caller))]
            } catch {
                await note(error, of: method, by: app)
                throw MethodFailure(broker: error)
            }
        }
    }

    /// Answers a known caller at once, if there is a standing answer.
    private func standing(_ answer: @escaping @Sendable (Callers.Caller) -> DBusValue?) -> DBusInterface.Method.AtOnce {
        { call in
            let claimed = call.arguments.first?.fieldsValue?["application"]?.stringValue
            return callers.known(call.sender, claiming: claimed).flatMap(answer).map { [$0] }
        }
    }

    /// A method for administrators only, with any program.
    private func administration(_ method: BrokerProtocol.Method, answer: @escaping Answer) -> DBusInterface.Method {
        self.method(method, of: "administrator") { fields, caller in
            guard caller.isAdministrator else { throw DeviceRefusal.notPermitted }
            return try await answer(fields, caller)
        }
    }

    /// A method whose request carries a name and a password. Any program of any user may call it.
    private func credentialed(_ method: BrokerProtocol.Method, answer: @escaping Answer) -> DBusInterface.Method {
        self.method(method, of: "enrolment", answer: answer)
    }

    /// A method for callers other than apps; the log calls them `name`.
    private func method(
        _ method: BrokerProtocol.Method,
        of name: String,
        answer: @escaping Answer
    ) -> DBusInterface.Method {
        DBusInterface.Method(
            method.rawValue,
            in: [.init("request", "a{sv}")],
            out: [.init("answer", "a{sv}")]
        ) { call in
            do {
                let credentials = try await callers.credentials(of: call.sender)
                let caller = Callers.Caller(
                    connection: call.sender,
                    app: AppIdentity(identifier: name),
                    credentials: credentials
                )
                return [.fields(try await answer(call.arguments.first?.fieldsValue ?? [:], caller))]
            } catch {
                await note(error, of: method, by: name)
                throw MethodFailure(broker: error)
            }
        }
    }

    /// Enters a refusal into the log, unless it concerns no account.
    private func note(_ error: any Error, of method: BrokerProtocol.Method, by app: String) async {
        let (code, message) = MethodFailure.refusal(error)
        log.notice("refused", metadata: ["request": "\(method.rawValue)", "app": "\(app)", "reason": "\(message)"])
        await refusals.note(code.description, of: method.rawValue, by: app)
    }
}

extension DeviceBroker.Grant {
    fileprivate var fields: BrokerProtocol.Fields {
        let token = WireToken(
            value: token.value,
            scopes: token.scopes.sorted(),
            expiresAt: token.expiresAt.timeIntervalSince1970
        )
        return ["account": account.fields, "epoch": .uint64(epoch), "token": token.fields]
    }
}

extension MethodFailure {
    /// The refusal as a D-Bus error: its code in the error's name, the reason as its text.
    fileprivate init(broker error: any Error) {
        let (code, message) = Self.refusal(error)
        self.init(name: BrokerProtocol.errorPrefix + code.description, message: message)
    }

    fileprivate static func refusal(_ error: any Error) -> (SharedDeviceError.Code, String) {
        switch error {
        case let error as DeviceRefusal:
            (SharedDeviceError.Code(error.code.description) ?? .brokerFailed, error.description)
        case let error as IdentityError:
            (code(of: error), error.description)
        case let error as BrokerProtocol.Malformed:
            (.invalidRequest, "the request lacks “\(error.field)”, or it has another type")
        default:
            (.brokerFailed, "\(error)")
        }
    }

    private static func code(of error: IdentityError) -> SharedDeviceError.Code {
        switch error.code {
        case .invalidGrant, .accountDisabled, .accountUnknown, .interactionRequired: .authenticationFailed
        case .slowDown, .busy: .tooManyAttempts
        case .invalidScope: .invalidRequest
        default: .brokerFailed
        }
    }
}
