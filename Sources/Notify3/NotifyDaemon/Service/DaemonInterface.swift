import DBusTransport
import NotifydProtocol

/// notifyd's D-Bus interface (``NotifydProtocol``).
enum DaemonInterface {
    static func interface(_ service: DaemonService) -> DBusInterface {
        func method(
            _ method: NotifydProtocol.Method,
            in inputs: [(String, String)] = [],
            out outputs: [(String, String)] = []
        ) -> DBusInterface.Method {
            DBusInterface.Method(
                method.rawValue,
                in: inputs.map { .init($0.0, $0.1) },
                out: outputs.map { .init($0.0, $0.1) },
                inOrder: { call, reply in
                    let work = IncomingWork(method: method, call: call, reply: reply)
                    service.assumeIsolated { $0.receive(work) }
                }
            )
        }
        func signal(_ signal: NotifydProtocol.Signal, _ arguments: [(String, String)] = []) -> DBusInterface.Signal {
            DBusInterface.Signal(signal.rawValue, arguments.map { .init($0.0, $0.1) })
        }
        return DBusInterface(
            NotifydProtocol.interface,
            methods: [
                method(.enter, in: [("names", "as")], out: [("notifyd", "s")]),
                method(.leave, in: [("names", "as")]),
                method(.report, in: [("inquiry", "t"), ("report", "a{sv}")]),
                method(.post, in: [("name", "s")], out: [("notifyd", "s")]),
                method(.setState, in: [("name", "s"), ("value", "t"), ("time", "t")]),
                method(.getState, in: [("name", "s")], out: [("value", "t")]),
                method(.suspendProcess, in: [("process", "u")]),
                method(.resumeProcess, in: [("process", "u")]),
                method(
                    .monitor,
                    in: [("token", "i"), ("name", "s"), ("path", "s"), ("flags", "u")],
                    out: [("notifyd", "s")]
                ),
                method(.unmonitor, in: [("token", "i")]),
                method(.list, out: [("names", "aa{sv}"), ("processes", "aa{sv}")]),
                method(.status, out: [("text", "s")]),
            ],
            signals: [
                signal(.tell, [("inquiry", "t"), ("detailed", "b")]),
                signal(.suspend), signal(.resume), signal(.changed, [("token", "i")]),
            ]
        )
    }
}

/// A call that is to be carried out.
struct IncomingWork: Sendable {
    let method: NotifydProtocol.Method
    let call: IncomingCall
    let reply: CallReply

    var sender: String { call.sender }

    func succeed(_ values: [DBusValue] = []) { reply.send(.success(values)) }

    func refuse(_ refusal: Refusal) { reply.refuse(refusal) }
}

extension CallReply {
    func refuse(_ refusal: Refusal) {
        let name = NotifydProtocol.errorPrefix + refusal.name.rawValue
        send(.failure(MethodFailure(name: name, message: refusal.message)))
    }
}

extension NotifydProtocol.Method {
    /// Whether notifyd has to know who the caller is.
    var needsIdentity: Bool {
        switch self {
        case .enter, .leave, .report, .post, .setState, .suspendProcess, .resumeProcess, .monitor, .unmonitor: true
        case .getState, .list, .status: false
        }
    }

    /// Whether its answer depends on the reports of all processes.
    var reads: Bool {
        switch self {
        case .getState, .list, .status, .suspendProcess, .resumeProcess: true
        case .enter, .leave, .report, .post, .setState, .monitor, .unmonitor: false
        }
    }
}
