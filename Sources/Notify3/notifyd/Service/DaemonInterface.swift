import DBus
import DBusService
import NotifyCenter

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
                reading: { message, reply in
                    let work = IncomingWork(method: method, sender: message.sender ?? "", reply: reply)
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
                method(.enter, in: [("names", "as")]),
                method(.leave, in: [("names", "as")]),
                method(.report, in: [("round", "t"), ("suspensions", "u"), ("names", NotifydProtocol.nameRows)]),
                method(.post, in: [("name", "s")]),
                method(.setState, in: [("name", "s"), ("value", "t"), ("time", "t")]),
                method(.getState, in: [("name", "s")], out: [("value", "t")]),
                method(.suspendProcess, in: [("process", "u")]),
                method(.resumeProcess, in: [("process", "u")]),
                method(
                    .list,
                    in: [("cursor", "t")],
                    out: [
                        ("names", NotifydProtocol.nameListingRows), ("processes", NotifydProtocol.processRows),
                        ("cursor", "t"),
                    ]
                ),
                method(.status, out: [("text", "s")]),
                method(.relay, in: [("interfaces", "as")]),
                method(.endRelay, in: [("interfaces", "as")]),
            ],
            signals: [
                signal(.tell, [("round", "t")]), signal(.suspend), signal(.resume),
                signal(.keep, [("states", NotifydProtocol.stateRows)]),
            ]
        )
    }
}

/// A pending call. Its arguments are read at its turn.
///
/// A class, because it moves from queue to queue. Copying a value with five references costs as much as carrying out a
/// call.
final class IncomingWork: Sendable {
    let method: NotifydProtocol.Method
    let sender: String
    let reply: CallReply

    init(method: NotifydProtocol.Method, sender: String, reply: CallReply) {
        (self.method, self.sender, self.reply) = (method, sender, reply)
    }

    func succeed(_ values: [DBusValue] = []) { reply.send(.success(values)) }

    func refuse(_ refusal: Refusal) { reply.send(.failure(MethodFailure(refusal))) }
}

extension MethodFailure {
    init(_ refusal: Refusal) {
        self.init(name: NotifydProtocol.errorPrefix + refusal.name.rawValue, message: refusal.message)
    }
}

extension NotifydProtocol.Method {
    var kind: Arrivals<IncomingWork>.Kind {
        switch self {
        case .report: .report
        case .enter, .leave: .registration
        case .post, .setState, .getState, .suspendProcess, .resumeProcess, .list, .status, .relay, .endRelay: .other
        }
    }
}
