import Basics
import DBus
import DBusService
import NotifyCenter
import Synchronization

/// Owns notifyd's bus name, and records the messages to notifyd and the posts in the order of the bus.
final class StandInNotifyd: Sendable {
    enum Word: Hashable {
        case enter(String)
        case leave(String)
        case post(String)
        /// A report: replaces the records with the full state.
        case report
        /// A registration for posts of these interfaces, with blanks between them.
        case relay(String)
    }

    private let heard = Locked<[Word]>([])
    let connection: DBusConnection
    private let callers = Locked<Set<String>>([])
    private let parts = Locked<(handlers: [Observation], lease: MatchRuleLease?)>(([], nil))

    /// - Parameter refusal: The error in the reply to a message.
    init(on bus: Bus, refusal: @escaping @Sendable (Word) -> MethodFailure? = { _ in nil }) async throws {
        let connection = try DBusConnection.open(bus)
        self.connection = connection
        func method(
            _ name: String,
            _ arguments: [DBusInterface.Argument],
            _ words: @escaping @Sendable ([DBusValue]) -> [Word]
        ) -> DBusInterface.Method {
            DBusInterface.Method(
                name,
                in: arguments,
                inOrder: { [weak self] call, reply in
                    self?.callers.withLock { _ = $0.insert(call.sender) }
                    let words = words(call.arguments)
                    for word in words { self?.note(word) }
                    reply.send(words.compactMap(refusal).first.map { .failure($0) } ?? .success([]))
                }
            )
        }
        let row: [DBusInterface.Argument] = [
            .init("round", "t"), .init("suspensions", "u"), .init("names", NotifydProtocol.nameRows),
        ]
        let methods = [
            method("Enter", [.init("names", "as")]) { ($0.first?.stringsValue ?? []).map { .enter($0) } },
            method("Leave", [.init("names", "as")]) { ($0.first?.stringsValue ?? []).map { .leave($0) } },
            method("Report", row) { _ in [.report] },
            method("Relay", [.init("interfaces", "as")]) {
                [.relay(($0.first?.stringsValue ?? []).joined(separator: " "))]
            },
        ]
        let interface = DBusInterface(NotifydProtocol.interface, methods: methods)
        let object = try connection.export([interface], at: NotifydProtocol.path)
        let signals = connection.onSignal { [weak self] message in
            guard message.member == "Posted", let name = try? message.arguments().first?.stringValue else { return }
            self?.note(.post(name))
        }
        let lease: MatchRuleLease = try await connection.addMatch(
            MatchRule(path: "/org/notifycenter", member: "Posted")
        )
        parts.withLock { $0 = ([object, signals], lease) }
        try await connection.requestName(NotifydProtocol.busName)
    }

    var words: [Word] { heard.withLock { $0 } }

    /// The unique bus names of the processes that have sent names.
    var processes: Set<String> { callers.withLock { $0 } }

    private func note(_ word: Word) { heard.withLock { $0.append(word) } }
}
