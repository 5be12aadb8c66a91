import DBusTransport
import FoundationEssentials
import Logging
import SharedDevice

/// The broker as apps call it over D-Bus.
struct BrokerInterface: Sendable {
    let broker: DeviceBroker
    let connection: DBusConnection
    let status: ConfigurationStatus
    let log: Logger

    static let version = "0.1.0"

    var interface: DBusInterface {
        DBusInterface(
            BrokerProtocol.interface,
            methods: [
                method(.getDeviceInformation, takesRequest: false) { _, _ in await deviceInformation() },
                method(.getCurrentAccount, takesRequest: false) { _, _ in await broker.current.session.fields },
                method(.signIn) { try await signIn($0, caller: $1) },
                method(.acquireTokenSilently) { fields, _ in try await acquireToken(fields) },
                method(.signOut) { try await signOut($0, caller: $1) },
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
        if let organization = configuration.organization { fields["organization"] = .string(organization) }
        if let problem = configuration.problem { fields["configurationProblem"] = .string(problem) }
        return fields
    }

    private func signIn(_ fields: BrokerProtocol.Fields, caller: String) async throws -> BrokerProtocol.Fields {
        guard let username = fields["username"]?.stringValue else { throw BrokerProtocol.Malformed("username") }
        let request = SignInRequest(username: username, password: fields["password"]?.stringValue.map { Secret($0) })
        let program = await describe(caller)
        do {
            let grant = try await broker.signIn(request, scopes: try scopes(fields))
            log.notice("signed in", metadata: ["epoch": "\(grant.epoch)", "caller": "\(program)"])
            return grant.fields
        } catch {
            log.notice("sign-in refused", metadata: ["reason": "\(error)", "caller": "\(program)"])
            throw error
        }
    }

    private func acquireToken(_ fields: BrokerProtocol.Fields) async throws -> BrokerProtocol.Fields {
        guard let identifier = fields["accountIdentifier"]?.stringValue else {
            throw BrokerProtocol.Malformed("accountIdentifier")
        }
        let refresh = fields["forceRefresh"]?.booleanValue ?? false
        return try await broker.acquireToken(for: identifier, scopes: try scopes(fields), refresh: refresh).fields
    }

    private func signOut(_ fields: BrokerProtocol.Fields, caller: String) async throws -> BrokerProtocol.Fields {
        guard let identifier = fields["accountIdentifier"]?.stringValue else {
            throw BrokerProtocol.Malformed("accountIdentifier")
        }
        let state = try await broker.apply(.signOut(accountIdentifier: identifier))
        let program = await describe(caller)
        log.notice("signed out", metadata: ["epoch": "\(state.epoch)", "caller": "\(program)"])
        return ["epoch": .uint64(state.epoch)]
    }

    private func scopes(_ fields: BrokerProtocol.Fields) throws(BrokerProtocol.Malformed) -> Set<String> {
        guard let value = fields["scopes"] else { return [] }
        guard let scopes = value.stringsValue else { throw BrokerProtocol.Malformed("scopes") }
        return Set(scopes)
    }

    /// Who calls, by the bus's word (architecture, D11).
    private func describe(_ caller: String) async -> String {
        do throws(DBusError) {
            let credentials = try await connection.credentials(of: caller)
            let process = credentials.processID.map { "pid \($0)" } ?? "pid unknown"
            return "\(credentials.executable ?? "program unknown"), \(process), uid \(credentials.userID)"
        } catch {
            return "gone before it could be identified"
        }
    }

    // MARK: Form

    private func method(
        _ method: BrokerProtocol.Method,
        takesRequest: Bool = true,
        answer: @escaping @Sendable (BrokerProtocol.Fields, _ caller: String) async throws -> BrokerProtocol.Fields
    ) -> DBusInterface.Method {
        DBusInterface.Method(
            method.rawValue,
            in: takesRequest ? [.init("request", "a{sv}")] : [],
            out: [.init("answer", "a{sv}")]
        ) { call in
            do {
                return [.fields(try await answer(call.arguments.first?.fieldsValue ?? [:], call.sender))]
            } catch {
                throw MethodFailure(broker: error)
            }
        }
    }
}

extension DeviceState {
    /// What apps are told of it.
    var session: DeviceSession { DeviceSession(account: account, epoch: epoch) }
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
    /// The refusal as it travels: the code in the error's name, the reason as its text.
    fileprivate init(broker error: any Error) {
        let (code, message) = Self.refusal(error)
        self.init(name: BrokerProtocol.errorPrefix + code.description, message: message)
    }

    private static func refusal(_ error: any Error) -> (SharedDeviceError.Code, String) {
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
