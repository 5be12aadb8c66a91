import DeviceConfiguration
import FoundationEssentials
@_spi(Extensions) import SharedDevice

/// The screen program: it shows the warning before the end of a session, and the sign-in.
///
/// The newest connection of the program is the screen.
struct ScreenLock: Sendable {
    /// The connection of the screen program; `nil` if there is none.
    private var screen: String?
    /// Connections of the program that another one has replaced. They are not the screen again before that one ends.
    private var replaced: Set<String> = []
    /// The request of the screen program that waits.
    private var open: UInt64?
    /// What should be on the screen.
    private(set) var content = ScreenAnswer(revision: 0, show: .nothing)

    /// Adapts to a new content, other than its revision.
    ///
    /// - Returns: Whether it differs.
    mutating func show(_ next: ScreenAnswer) -> Bool {
        var next = next
        next.revision = content.revision
        guard next != content else { return false }
        next.revision += 1
        content = next
        return true
    }

    /// Handles a request of the screen program. A connection has one request at a time.
    mutating func ask(_ request: Request, _ facts: Facts) throws(Refusal) -> [Decision] {
        let connection = request.connection
        guard !replaced.contains(connection) else { throw .otherScreen }
        if let screen, screen != connection { replaced.insert(screen) }
        screen = connection
        let earlier = open.map { [Decision.abandon($0)] } ?? []
        open = nil
        return earlier + answer(request, facts)
    }

    /// Answers the request if its caller does not know the content, or has waited for long enough.
    mutating func answer(_ request: Request, _ facts: Facts) -> [Decision] {
        guard case .screen(_, let known, let patience) = request.call else { return [] }
        let deadline = request.askedAt + patience
        guard content.revision == known, deadline > facts.now.uptime else {
            if open == request.number { open = nil }
            return [.respond(request.number, .screen(content))]
        }
        open = request.number
        return [.wait(request, until: deadline, for: .screen)]
    }

    mutating func leave(_ connection: String, _ facts: Facts) {
        replaced.remove(connection)
        guard connection == screen else { return }
        (screen, open, replaced) = (nil, nil, [])
    }
}
