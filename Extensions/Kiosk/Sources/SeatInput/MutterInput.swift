import Basics
package import DBus

/// The input of a GNOME session, by Mutter's D-Bus interface.
///
/// It asks for the idle time instead of watching for pauses, because Mutter reports no pause while a program keeps the
/// screen on.
package final class MutterInput: SeatInput {
    private static let service = "org.gnome.Mutter.IdleMonitor"
    private static let path = "/org/gnome/Mutter/IdleMonitor/Core"
    private static let patience = Duration.seconds(10)

    package let name = "Mutter's idle monitor"
    private let connection: DBusConnection
    private let registrations: (signals: Observation, events: Observation, rules: [MatchRuleLease])
    /// The numbers of watches that have fired; `nil` when Mutter or the bus is gone.
    private let news: AsyncStream<UInt64?>

    /// - Parameter connection: A connection to the session's bus.
    /// - Returns: `nil` if Mutter is not on that bus.
    package init?(on connection: DBusConnection) async throws(DBusError) {
        let service = Self.service
        guard let owner = try await connection.owner(of: service) else { return nil }
        let (news, continuation) = AsyncStream.makeStream(of: UInt64?.self, bufferingPolicy: .bufferingNewest(64))
        let signals = connection.onSignal { message in
            guard let arguments = try? message.arguments() else { return }
            if message.isBusSignal("NameOwnerChanged") {
                if arguments.first?.stringValue == service { continuation.yield(nil) }
            } else if message.sender == owner, message.member == "WatchFired",
                let number = arguments.first?.unsignedValue
            {
                continuation.yield(number)
            }
        }
        let events = try connection.onEvent { event in if case .lost = event { continuation.yield(nil) } }
        let rules = [
            MatchRule(
                signalFrom: "org.freedesktop.DBus",
                interface: "org.freedesktop.DBus",
                member: "NameOwnerChanged",
                argument0: service
            ),
            MatchRule(signalFrom: owner, path: Self.path, interface: service, member: "WatchFired"),
        ]
        var leases: [MatchRuleLease] = []
        for rule in rules { leases.append(try await connection.addMatch(rule)) }
        registrations = (signals, events, leases)
        self.connection = connection
        self.news = news
    }

    package func next(after moment: SuspendingClock.Instant) async throws {
        guard try await !hasInput(after: moment) else { return }
        let watch = try await ask("AddUserActiveWatch")
        // There may have been input before Mutter had the watch, which it removes with the next input.
        guard try await !hasInput(after: moment) else { return }
        for await number in news {
            guard let number else { throw SeatInputError("Mutter has left the session's bus") }
            if number == watch { return }
        }
        throw CancellationError()
    }

    private func hasInput(after moment: SuspendingClock.Instant) async throws(SeatInputError) -> Bool {
        let unused = try await ask("GetIdletime")
        return SuspendingClock.now - .milliseconds(Int64(clamping: unused)) > moment
    }

    /// - Returns: The number in the response.
    private func ask(_ member: String) async throws(SeatInputError) -> UInt64 {
        let answer: [DBusValue]
        do throws(DBusError) {
            let message = try DBusMessage.methodCall(
                destination: Self.service,
                path: Self.path,
                interface: Self.service,
                member: member,
                options: .noAutoStart
            )
            answer = try await connection.call(message, timeout: Self.patience)
        } catch {
            throw SeatInputError("Mutter does not respond: \(error)")
        }
        guard let number = answer.first?.unsignedValue else {
            throw SeatInputError("Mutter's response to \(member) is not a number")
        }
        return number
    }
}
