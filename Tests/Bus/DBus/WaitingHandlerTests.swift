import NotifyCenterTestKit
import Testing

@testable import DBus

@Suite("Handlers on the reading thread, which must not wait for the bus")
struct WaitingHandlerTests {
    private let bus: PrivateBus
    private let connection: DBusConnection

    init() throws {
        bus = try PrivateBus()
        connection = try DBusConnection.open(bus.bus)
    }

    @Test("a blocking function throws at once and names the remedy")
    func waiting() async throws {
        let errors = Noted<DBusError?>()
        connection.perform { [connection] in
            let patience = Duration.seconds(600)
            errors.note(failure { () throws(DBusError) in try connection.flush(timeout: patience) })
            errors.note(
                failure { () throws(DBusError) in try connection.callAndWait(try .busCall("GetId"), timeout: patience) }
            )
            errors.note(failure { () throws(DBusError) in try connection.addMatch(.pong) })
        }
        try connection.reconnectOnReadingThread()
        try await eventually("all have ended") { errors.all.count == 3 }
        #expect(errors.all.map { $0?.code } == [.wouldDeadlock, .wouldDeadlock, .wouldDeadlock])
        #expect(
            errors.all.first??.description
                == "could not call org.freedesktop.DBus.GetId: this thread reads the bus, and would wait for itself; "
                + "observe with another delivery than .immediate, or call the async form in a task"
        )
        #expect(connection.statistics.matchRules == 0)
    }
}
