import Basics
import BrokerCore
import DBus
import DBusService
import DeviceConfiguration
import FoundationEssentials
import Identity
@_spi(Extensions) import SharedDevice
import Synchronization

/// The broker's D-Bus interface: turns calls into requests, and the broker's replies into responses.
final class BrokerInterface: Sendable {
    private struct Replies {
        var next: UInt64 = 0
        var open: [UInt64: (reply: CallReply, method: BrokerProtocol.Method)] = [:]
    }

    private let engine: BrokerEngine
    private let callers: Callers
    private let replies = Locked(Replies())
    private let known = Locked(KnownAnswers())

    private let signingKeys: @Sendable () -> String?

    /// - Parameter signingKeys: The keys that verify tokens, if this device signs them. It never blocks.
    init(engine: BrokerEngine, callers: Callers, signingKeys: @escaping @Sendable () -> String?) {
        (self.engine, self.callers, self.signingKeys) = (engine, callers, signingKeys)
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
                .init("InterfaceVersion", "u") { .uint32(BrokerProtocol.version) },
                .init("Version", "s") { .string(ProjectVersion.number) },
                .init("Mode", "s") { [engine] in .string(engine.read { $0.device.mode.rawValue }) },
                .init("Epoch", "t") { [engine] in .uint64(engine.read { $0.device.epoch }) },
                .init("SigningKeys", "s") { [signingKeys] in .string(signingKeys() ?? #"{"keys":[]}"#) },
            ],
            document: String(decoding: PackageResources.org_notifycenter_SharedDevice1_xml, as: UTF8.self)
        )
    }

    func reply(_ number: UInt64, _ result: Result<Response, Refusal>) {
        guard let (reply, method) = replies.withLock({ $0.open.removeValue(forKey: number) }) else { return }
        switch result {
        case .success(let response):
            let fields = response.fields
            if let answer = known.withLock({ $0.answer(fields, of: method) }) {
                reply.send(answer)
            } else {
                reply.send(.success([.fields(fields)]))
            }
        case .failure(let refusal): reply.send(.failure(MethodFailure(refusal)))
        }
    }

    func forgetAnswers() { known.withLock { $0 = KnownAnswers() } }

    /// Called on the reading thread.
    private func take(_ method: BrokerProtocol.Method, _ call: borrowing DBusMessage, _ reply: CallReply) {
        // First, so that no other copy of a secret is made.
        let secrets = SecretFields.taken(from: call)
        let isInteractive = call.allowsInteraction
        // The other fields are read in the user's turn, so that calls from many strangers hold up no other user.
        callers.identify(call.sender ?? "") { [self] caller in
            switch caller {
            case .failure(let refusal): reply.send(.failure(MethodFailure(refusal)))
            case .success(let caller): take(method, secrets, isInteractive: isInteractive, from: caller, reply)
            }
        }
    }

    private func take(
        _ method: BrokerProtocol.Method,
        _ secrets: SecretFields,
        isInteractive: Bool,
        from caller: Caller,
        _ reply: CallReply
    ) {
        guard let arguments = try? reply.readArguments() else {
            return reply.send(.failure(MethodFailure(.missing("request"))))
        }
        let fields = arguments.first?.fieldsValue ?? [:]
        let call: Request.Call
        do throws(Refusal) {
            call = try Request.Call(method, RequestFields(fields, secrets))
        } catch {
            reply.send(.failure(MethodFailure(error)))
            return engine.submit(.malformed(connection: caller.connection, method: method.rawValue, error))
        }
        let number = replies.withLock { replies -> UInt64 in
            replies.next += 1
            replies.open[replies.next] = (reply, method)
            return replies.next
        }
        let request = Request(
            number: number,
            connection: caller.connection,
            claimed: fields["application"]?.stringValue,
            call: call,
            method: method.rawValue,
            isInteractive: isInteractive
        )
        engine.submit(.request(request))
    }
}

/// A cache of encoded responses that several callers get, as all apps do after a sign-out. The key is the whole
/// content. It may contain a token, so the cache is cleared when the device changes and when the store erases data.
struct KnownAnswers {
    private typealias Known = (fields: BrokerProtocol.Fields, prepared: PreparedAnswer?)

    /// Newest last. Few responses go to many apps: one for apps that owe a cleanup, one for the others.
    private var answers: [Known] = []
    private static let capacity = 4
    /// The maximum of sessions in a cached response. A response with more is specific to one app.
    private static let longest = 16

    /// - Returns: The cached response; `nil` the first time, and for a method whose responses always differ.
    mutating func answer(_ fields: BrokerProtocol.Fields, of method: BrokerProtocol.Method) -> PreparedAnswer? {
        switch method {
        case .getCurrentAccount, .reportCleanup, .acquireTokenSilently: break
        default: return nil
        }
        guard let index = answers.firstIndex(where: { $0.fields == fields }) else {
            guard fields["owed"]?.elementsValue?.count ?? 0 <= Self.longest else { return nil }
            if answers.count == Self.capacity { answers.removeFirst() }
            answers.append((fields, nil))
            return nil
        }
        if answers[index].prepared == nil { answers[index].prepared = try? PreparedAnswer([.fields(fields)]) }
        return answers[index].prepared
    }
}

extension MethodFailure {
    /// The code becomes the error's name, and the reason the message. Details are for programs.
    fileprivate init(_ refusal: Refusal) {
        var details: BrokerProtocol.Fields = [:]
        if !refusal.declinedScopes.isEmpty {
            details["declinedScopes"] = .array(refusal.declinedScopes.map { .string($0) }, of: "s")
            details["grantedScopes"] = .array(refusal.grantedScopes.map { .string($0) }, of: "s")
        }
        self.init(
            name: BrokerProtocol.errorPrefix + refusal.code.description,
            message: refusal.description,
            details: details
        )
    }
}
