import NotifydProtocol
import Testing

@testable import NotifyDaemon

@Suite struct SuspendedProcessTests {
    private var state = DaemonState(process: 77, user: 501)
    private let user = Identity(user: 501, process: 10)

    init() throws {
        _ = state.arrived(":1.1", user)
        _ = try state.enter(":1.1", ["n"])
    }

    // Rules, a.3 and a.10
    @Test mutating func suspensionOfAProcessIsCounted() throws {
        let root = Identity(user: 0, process: 1)
        let result1 = try state.suspendProcess(10, by: root)
        #expect(result1 == [.suspend(connection: ":1.1", times: 1)])
        let result2 = try state.suspendProcess(10, by: user)
        #expect(result2 == [.suspend(connection: ":1.1", times: 1)])
        #expect(state.page(0, for: .root).processes.first?.report.suspensions == 2)
        let result3 = try state.resumeProcess(10, by: user)
        #expect(result3 == [.resume(connection: ":1.1")])
        let result4 = try state.resumeProcess(10, by: user)
        #expect(result4 == [.resume(connection: ":1.1")])
        let result5 = try state.resumeProcess(10, by: user)
        #expect(result5 == [])
    }

    // Otherwise the bus would keep a message for it with each call.
    @Test func aProcessThatDoesNotReadIsNotSuspended() {
        let suspended = state.refusal { _ = try $0.suspendProcess(10, by: user, silent: [":1.1"]) }
        #expect(suspended == .limitsExceeded)
        let resumed = state.refusal { _ = try $0.resumeProcess(10, by: user, silent: [":1.1"]) }
        #expect(resumed == .limitsExceeded)
    }

    @Test func onlyRootAndTheProcesssUserSuspend() {
        #expect(
            state.refusal { _ = try $0.suspendProcess(10, by: Identity(user: 502, process: 1)) } == .notAuthorized
        )
        #expect(
            state.refusal { _ = try $0.resumeProcess(10, by: Identity(user: 502, process: 1)) } == .notAuthorized
        )
        #expect(state.refusal { _ = try $0.suspendProcess(11, by: user) } == .noSuchProcess)
        #expect(state.refusal { _ = try $0.suspendProcess(0, by: user) } == .noSuchProcess)
    }

    @Test mutating func aSecondConnectionOfASuspendedProcessIsSuspendedToo() throws {
        _ = try state.suspendProcess(10, by: user)
        _ = try state.suspendProcess(10, by: user)
        let result6 = state.arrived(":1.2", user)
        #expect(result6 == [.suspend(connection: ":1.2", times: 2)])
        state.gone(":1.1")
        let result7 = state.arrived(":1.3", user)
        #expect(result7 == [.suspend(connection: ":1.3", times: 2)])
        state.gone(":1.2")
        state.gone(":1.3")
        // Another process may have this process id now.
        let result8 = state.arrived(":1.4", user)
        #expect(result8 == [])
    }
}
