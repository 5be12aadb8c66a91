import DBusTransport
import DeviceConfiguration
import Identity
import ProjectVersion
import SharedDevice
import Synchronization

/// The broker as programs call it over D-Bus: makes requests of calls, and answers of the broker's replies.
final class BrokerInterface: Sendable {
    private struct Replies {
        var next: UInt64 = 0
        var open: [UInt64: CallReply] = [:]
    }

    private let engine: BrokerEngine
    private let callers: Callers
    private let replies = Locked(Replies())

    init(engine: BrokerEngine, callers: Callers) {
        self.engine = engine
        self.callers = callers
    }

    var interface: DBusInterface {
        DBusInterface(
            BrokerProtocol.interface,
            methods: BrokerProtocol.Method.allCases.map { method in
                DBusInterface.Method(
                    method.rawValue,
                    in: method == .getDeviceInformation ? [] : [.init("request", "a{sv}")],
                    out: [.init("answer", "a{sv}")],
                    reading: { [self] in take(method, $0, $1) }
                )
            },
            properties: [
                .init("Version", "s") { .string(ProjectVersion.number) },
                .init("Mode", "s") { [engine] in .string(engine.read { $0.device.mode.rawValue }) },
                .init("Epoch", "t") { [engine] in .uint64(engine.read { $0.device.epoch }) },
            ]
        )
    }

    /// Sends the answer to a request.
    func reply(_ number: UInt64, _ result: Result<BrokerProtocol.Fields, Refusal>) {
        guard let reply = replies.withLock({ $0.open.removeValue(forKey: number) }) else { return }
        switch result {
        case .success(let fields): reply.send(.success([.fields(fields)]))
        case .failure(let refusal): reply.send(.failure(MethodFailure(refusal)))
        }
    }

    /// On the reading thread.
    private func take(_ method: BrokerProtocol.Method, _ call: borrowing DBusMessage, _ reply: CallReply) {
        // First, so that no other copy of it is made.
        let password = call.takeText("password") { Secret(bytes: $0) }
        guard let arguments = try? call.arguments() else {
            return reply.send(.failure(MethodFailure(.missing("request"))))
        }
        let fields = arguments.first?.fieldsValue ?? [:]
        let parsed = Result { () throws(Refusal) in try Request.Call(method, RequestFields(fields, password)) }
        let claimed = fields["application"]?.stringValue
        // The fields themselves are not kept while the bus is asked.
        callers.identify(call.sender ?? "") { [self] caller in
            switch (caller, parsed) {
            case (.failure(let refusal), _): reply.send(.failure(MethodFailure(refusal)))
            case (.success(let caller), .failure(let refusal)):
                reply.send(.failure(MethodFailure(refusal)))
                engine.submit(.malformed(connection: caller.connection, method: method.rawValue, refusal))
            case (.success(let caller), .success(let call)):
                let number = replies.withLock { replies -> UInt64 in
                    replies.next += 1
                    replies.open[replies.next] = reply
                    return replies.next
                }
                let request = Request(
                    number: number,
                    connection: caller.connection,
                    claimed: claimed,
                    call: call,
                    method: method.rawValue
                )
                engine.submit(.request(request))
            }
        }
    }
}

extension MethodFailure {
    /// The refusal as a D-Bus error: its code in the error's name, the reason as its text.
    fileprivate init(_ refusal: Refusal) {
        self.init(name: BrokerProtocol.errorPrefix + refusal.code.description, message: refusal.description)
    }
}

/// The fields of a request, each with its type and its bound. They come from another process.
private struct RequestFields {
    /// The longest that a request may wait for something to change, in seconds.
    static let longestWait = 60.0
    /// The longest list of scopes that is taken, in bytes.
    static let longestScopes = 8192
    /// The longest words for the log, in Unicode scalars.
    static let longestWords = 500

    private let fields: BrokerProtocol.Fields
    private let password: Secret?

    init(_ fields: BrokerProtocol.Fields, _ password: Secret?) { (self.fields, self.password) = (fields, password) }

    func text(_ key: String) -> String? { fields[key]?.stringValue }

    func required(_ key: String) throws(Refusal) -> String {
        guard let text = text(key) else { throw .missing(key) }
        return text
    }

    func words(_ key: String) -> String? { text(key)?.forLog(Self.longestWords) }

    func number(_ key: String) -> UInt64? { fields[key]?.unsignedValue }

    func flag(_ key: String) -> Bool { fields[key]?.booleanValue ?? false }

    /// Names a sign-in, so that its app can cancel it.
    func label() throws(Refusal) -> String? {
        guard let label = text("request") else { return nil }
        guard label.utf8.count <= 64 else { throw .missing("request") }
        return label
    }

    func credentials() throws(Refusal) -> Request.Credentials {
        Request.Credentials(username: try required("username"), password: password)
    }

    func scopes() throws(Refusal) -> Set<String> {
        guard let value = fields["scopes"] else { return [] }
        // Tokens are kept by their scopes: those must not fill the memory.
        guard let scopes = value.stringsValue, scopes.reduce(0, { $0 + $1.utf8.count + 1 }) <= Self.longestScopes else {
            throw .missing("scopes")
        }
        return Set(scopes)
    }

    /// How long the caller is ready to wait.
    func patience() throws(Refusal) -> Duration {
        guard let value = fields["wait"] else { return .zero }
        guard case .double(let seconds) = value, seconds >= 0 else { throw .missing("wait") }
        return .seconds(min(seconds, Self.longestWait))
    }
}

extension Request.Call {
    /// - Throws: ``Refusal`` where a field lacks or has another type.
    fileprivate init(_ method: BrokerProtocol.Method, _ fields: RequestFields) throws(Refusal) {
        switch method {
        case .getDeviceInformation: self = .deviceInformation
        case .getCurrentAccount: self = .currentAccount
        case .signIn:
            self = .signIn(
                try fields.credentials(),
                scopes: try fields.scopes(),
                patience: try fields.patience(),
                label: try fields.label()
            )
        case .cancelSignIn:
            guard let label = try fields.label() else { throw .missing("request") }
            self = .cancelSignIn(label: label)
        case .acquireTokenSilently:
            self = .acquireToken(
                identifier: try fields.required("accountIdentifier"),
                scopes: try fields.scopes(),
                refresh: fields.flag("forceRefresh"),
                session: fields.number("session")
            )
        case .signOut:
            self = .signOut(identifier: try fields.required("accountIdentifier"), session: fields.number("session"))
        case .reportCleanup:
            guard let session = fields.number("session") else { throw .missing("session") }
            let progress = fields.text("progress").flatMap(CleanupReport.Progress.init)
            guard let progress, [.begun, .failed, .finished].contains(progress) else { throw .missing("progress") }
            self = .report(progress, session: session, detail: fields.words("detail"))
        case .getRound:
            self = .round(
                session: fields.number("session"),
                after: fields.number("revision"),
                awaitsEnd: fields.flag("awaitsEnd"),
                patience: try fields.patience()
            )
        case .reportActivity: self = .activity
        case .join: self = .join(try fields.credentials())
        case .leave: self = .leave(try fields.credentials())
        case .signOutAnyone:
            self = .signOutAnyone(
                identifier: fields.text("accountIdentifier"),
                reason: fields.words("reason") ?? "an administrator"
            )
        case .waive:
            guard let reason = fields.words("reason"), !reason.isEmpty else { throw .missing("reason") }
            self = .waive(
                app: try fields.required("app"),
                user: fields.number("user").flatMap(UInt32.init(exactly:)),
                session: fields.number("session"),
                reason: reason
            )
        case .getRunningApps: self = .runningApps
        }
    }
}
