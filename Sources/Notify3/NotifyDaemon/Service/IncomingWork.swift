import DBusTransport
import NotifydProtocol

/// A call that is to be carried out.
struct IncomingWork: Sendable {
    let method: NotifydProtocol.Method
    let call: IncomingCall
    let reply: CallReply

    var sender: String { call.sender }

    func succeed(_ values: [DBusValue] = []) { reply.send(.success(values)) }

    func refuse(_ denial: Denial) { reply.refuse(denial) }
}

extension CallReply {
    func refuse(_ denial: Denial) {
        let name = NotifydProtocol.errorPrefix + denial.refusal.rawValue
        send(.failure(MethodFailure(name: name, message: denial.message)))
    }
}

extension NotifydProtocol.Method {
    /// Whether it matters who calls.
    var needsIdentity: Bool {
        switch self {
        case .enter, .leave, .report, .post, .setState, .suspendProcess, .resumeProcess, .monitor, .unmonitor: true
        case .getState, .list, .status: false
        }
    }

    /// Whether its answer is made of what all processes have told.
    var reads: Bool {
        switch self {
        case .getState, .list, .status, .suspendProcess, .resumeProcess: true
        case .enter, .leave, .report, .post, .setState, .monitor, .unmonitor: false
        }
    }
}
